import json
from pathlib import Path

import pytest

from models.training import run
from models.training.config import Corpus, Source
from models.training.corpora import finder, in_place_of, read_source
from models.training.reranker_config import PairCorpus


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A corpus of three dialogues, one of which must not be trained on."""
    folder = tmp_path / "corpora" / "talk"
    folder.mkdir(parents=True)
    said = [{"speaker": "A", "text": "hi"}, {"speaker": "B", "text": "hello"}]
    lines = (json.dumps({"id": f"d{n}", "utterances": said}) for n in range(3))
    (folder / "train.jsonl").write_text("\n".join(lines))
    (folder / "leaks.json").write_text(json.dumps({"exact": ["d1"]}))
    return folder


@pytest.mark.parametrize(
    "named",
    [
        Corpus(path="talk/train.jsonl", leave_out="talk/leaks.json", views=3),
        PairCorpus(path="talk/train.jsonl", leave_out="talk/leaks.json", pairs=3),
    ],
)
def test_what_is_left_out_stays_out_of_a_file_that_is_named(
    talk: Path, named: Source, caplog: pytest.LogCaptureFixture
) -> None:
    file = talk / "train.jsonl"
    (corpus,) = in_place_of([Source(path="a"), named], [file])
    update = {"path": str(file), "leave_out": str(talk / "leaks.json")}
    assert corpus == named.model_copy(update=update)
    assert [dialogue.id for dialogue in read_source(corpus, finder([]))] == ["d0", "d2"]
    assert not caplog.messages


def test_a_file_is_the_one_that_is_named_wherever_one_stands(
    talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(talk)
    (corpus,) = in_place_of([Corpus(path="talk/train.jsonl", views=5)], [Path("train.jsonl")])
    assert corpus == Corpus(path="train.jsonl", views=5)


def test_that_nothing_is_left_out_of_another_file_is_told(
    talk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = talk / "other.jsonl"
    named = [Corpus(path="talk/train.jsonl", leave_out="talk/leaks.json"), Corpus(path="a.jsonl")]
    assert in_place_of(named, [other]) == (Corpus(path=str(other)),)
    (warning,) = caplog.messages
    assert warning.startswith("talk/leaks.json: leaves dialogues out of talk/train.jsonl, and none")


def test_what_is_left_out_may_lie_elsewhere(talk: Path, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (talk / "leaks.json").rename(tmp_path / "lists" / "leaks.json")
    named = Corpus(path="talk/train.jsonl", leave_out="lists/leaks.json")
    (corpus,) = in_place_of([named], [talk / "train.jsonl"])
    assert len(list(read_source(corpus, finder([tmp_path])))) == 2


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        ('kind = "triple"\nbase = "x"\nobjectives = {c3l = 1}', "train_stages"),
        ('kind = "pairwise"\nbase = "x"', "train_pairwise"),
        ('kind = "ioi"', "train_ioi"),
    ],
)
def test_a_run_leaves_out_of_a_file_what_its_recipe_does(
    talk: Path, monkeypatch: pytest.MonkeyPatch, text: str, trains: str
) -> None:
    recipe = talk / "recipe.toml"
    data = '[[data]]\npath = "talk/train.jsonl"\nleave_out = "talk/leaks.json"'
    recipe.write_text(f"{text}\n{data}")
    trained: list[Source] = []

    def catch(what: run.Config | list[run.Config], *_: object, **__: object) -> Path:
        trained.extend((what[0] if isinstance(what, list) else what).data)
        return talk

    monkeypatch.setattr(run, trains, catch)
    run.run(recipe, [talk / "train.jsonl"], talk / "out")
    assert [corpus.leave_out for corpus in trained] == [str(talk / "leaks.json")]
