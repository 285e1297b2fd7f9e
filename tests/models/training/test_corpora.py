import gzip
import json
import re
from pathlib import Path

import pytest

from turnwise.models.errors import DataError
from turnwise.models.training import run
from turnwise.models.training.config import Corpus, Source
from turnwise.models.training.corpora import finder, in_place_of, read_source, recipe_of
from turnwise.models.training.reranker_config import IoIConfig, PairCorpus


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


def test_a_list_that_names_no_dialogue_of_the_corpus_is_refused(talk: Path) -> None:
    file, leaks = talk / "train.jsonl", talk / "leaks.json"
    leaks.write_text(json.dumps({"exact": ["train-1", "train-2"]}))
    said = re.escape(f"{file}: none of the 2 dialogues that {leaks} lists is in it")
    with pytest.raises(DataError, match=said):
        list(read_source(Source(path=str(file), leave_out=str(leaks)), Path))
    leaks.write_text("{}")
    assert len(list(read_source(Source(path=str(file), leave_out=str(leaks)), Path))) == 3


def test_dialogues_of_a_list_that_are_not_in_the_corpus_are_counted(
    talk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, leaks = talk / "train.jsonl", talk / "leaks.json"
    leaks.write_text(json.dumps({"exact": ["d1", "d7"], "near": ["d8"]}))
    read = list(read_source(Source(path=str(file), leave_out=str(leaks)), Path))
    assert [dialogue.id for dialogue in read] == ["d0", "d2"]
    (warning,) = caplog.messages
    assert warning.startswith(f"{leaks}: 2 of its 3 dialogues are not in {file}")


def test_ids_of_a_list_may_be_numbers_and_the_list_may_begin_with_a_mark(talk: Path) -> None:
    file, leaks = talk / "train.csv", talk / "leaks.json"
    file.write_text("id,speaker,text\n1,A,hi\n1,B,hello\n2,A,hi\n2,B,hello\n")
    leaks.write_text('{"exact": [1]}', encoding="utf-8-sig")
    read = list(read_source(Source(path=str(file), leave_out=str(leaks)), Path))
    assert [dialogue.id for dialogue in read] == ["2"]


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_that_lines_are_counted_where_dialogues_have_no_ids_is_told(
    talk: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    file, leaks = talk / name, talk / "leaks.json"
    lines = "".join(f"hi {n} __eou__ hello __eou__\n" for n in range(3)).encode()
    file.write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    leaks.write_text(json.dumps({"exact": ["train-1"]}))
    read = list(read_source(Source(path=str(file), leave_out=str(leaks)), Path))
    assert [dialogue.id for dialogue in read] == ["train-2", "train-3"]
    (warning,) = caplog.messages
    assert warning == (
        f"{file}: has no ids; {leaks} must name its dialogues by their lines, the first train-1"
    )


def test_where_files_lie_is_no_part_of_a_recipe() -> None:
    named = PairCorpus(path="here/a.jsonl", leave_out="/there/leaks.json", pairs=2)
    config = IoIConfig(kind="ioi", data=(named, PairCorpus(path="b.csv")))
    recipe = recipe_of(config, [([1, 2, 3], 2), ([1], None)])
    assert recipe["data"] == [
        {"path": "a.jsonl", "leave_out": "leaks.json", "pairs": 2},
        {"path": "b.csv", "leave_out": None, "pairs": None},
    ]
    assert recipe["items"] == [3, 1]
    assert recipe["batch"] == 50


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
