import json
import re
from pathlib import Path

import pytest

from tests.unit.models.training.conftest import write_dialogues
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.dialogue_files import DialogueFormat, read_dialogues
from turnwise.models.errors import DataError
from turnwise.models.training import run
from turnwise.models.training.config import (
    Config,
    CorpusSource,
    PairCorpus,
    Validation,
    WindowCorpus,
)
from turnwise.models.training.corpora import (
    OWN_CORPORA,
    NliPair,
    finder,
    pairs_of,
    read_nli,
    read_pairs,
    read_source,
    read_translations,
    read_windows,
    replace_corpora,
    validation_dialogues,
    validation_texts,
)


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


def ids(file: Path, leaks: Path) -> list[str]:
    """Return the ids of a corpus without what a list names."""
    source = CorpusSource(path=str(file), leave_out=str(leaks))
    return [dialogue.id for dialogue in read_source(source, Path)]


def test_a_file_is_the_one_that_is_named_wherever_one_stands(
    talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(talk)
    (corpus,) = replace_corpora(
        [WindowCorpus(path="talk/train.jsonl", windows=5)], [Path("train.jsonl")]
    )
    assert corpus == WindowCorpus(path="train.jsonl", windows=5)


def test_a_table_may_have_any_columns_and_encoding(tmp_path: Path) -> None:
    table = tmp_path / "chats.csv"
    table.write_bytes("Fall;Wer;Was\n7;A;Schön.\n7;B;Ja.\n".encode("cp1252"))
    form = DialogueFormat("Fall", "Wer", "Was", "cp1252")
    (corpus,) = replace_corpora([WindowCorpus(path="talk/train.jsonl")], [table], form)
    (dialogue,) = read_source(corpus, Path)
    assert dialogue == Dialogue("7", (Utterance("A", "Schön."), Utterance("B", "Ja.")))
    validation = Validation.model_validate(
        {
            "paths": [str(table)],
            "format": {"dialogue": "Fall", "speaker": "Wer", "text": "Was", "encoding": "cp1252"},
        }
    )
    assert validation.format == form
    assert validation_dialogues(validation, Path, 1) == {str(table): [dialogue]}


def test_that_nothing_is_left_out_of_another_file_is_told(
    talk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = talk / "other.jsonl"
    named = [
        WindowCorpus(path="talk/train.jsonl", leave_out="talk/leaks.json"),
        WindowCorpus(path="a.jsonl"),
    ]
    assert replace_corpora(named, [other]) == (WindowCorpus(path=str(other)),)
    (warning,) = caplog.messages
    what = "lists dialogues of talk/train.jsonl, which was not given"
    assert warning == f"talk/leaks.json: {what}; no dialogue is left out"


def test_a_list_that_names_no_dialogue_of_the_corpus_is_refused(talk: Path) -> None:
    file = talk / "train.jsonl"
    leaks = talk / "leaks.json"
    leaks.write_text(json.dumps({"exact": ["train-1", "train-2"]}))
    said = re.escape(f"{file}: holds none of the 2 dialogues that {leaks} lists")
    with pytest.raises(DataError, match=said):
        ids(file, leaks)
    leaks.write_text("{}")
    assert len(ids(file, leaks)) == 3


def test_dialogues_of_a_list_that_are_not_in_the_corpus_are_counted(
    talk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = talk / "train.jsonl"
    leaks = talk / "leaks.json"
    leaks.write_text(json.dumps({"exact": ["d1", "d7"], "near": ["d8"]}))
    assert ids(file, leaks) == ["d0", "d2"]
    (warning,) = caplog.messages
    assert warning.startswith(f"{leaks}: 2 of its 3 dialogues are not in {file}")


def test_ids_of_a_list_may_be_numbers_and_the_list_may_begin_with_a_mark(talk: Path) -> None:
    file = talk / "train.csv"
    leaks = talk / "leaks.json"
    file.write_text("id,speaker,text\n1,A,hi\n1,B,hello\n2,A,hi\n2,B,hello\n")
    leaks.write_text('{"exact": [1]}', encoding="utf-8-sig")
    assert ids(file, leaks) == ["2"]


@pytest.mark.parametrize("text", ["{", '["d1"]', '{"exact": "d1"}', '{"exact": [null]}'])
def test_a_list_in_another_form_is_refused(talk: Path, text: str) -> None:
    leaks = talk / "leaks.json"
    leaks.write_text(text)
    with pytest.raises(DataError, match="expected an object of lists of dialogue ids") as caught:
        ids(talk / "train.jsonl", leaks)
    assert caught.value.file == str(leaks)


@pytest.mark.parametrize(
    "text",
    [
        'base = "x"\nobjectives = {c3l = 1}\nstage = [{kind = "curved"}, {kind = "triple"}]',
        'kind = "pairwise"\nbase = "x"',
        'kind = "ioi"',
    ],
)
def test_a_run_on_a_file_leaves_out_what_its_recipe_does_in_all_stages(
    talk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    recipe = talk / "recipe.toml"
    data = '[[data]]\npath = "talk/train.jsonl"\nleave_out = "talk/leaks.json"'
    recipe.write_text(f"{text}\n{data}")
    trained: list[Config] = []
    monkeypatch.setattr(run, "train_stages", lambda stages, *_, **__: trained.extend(stages))
    run.run(recipe, [talk / "train.jsonl"], talk / "out")
    assert len(trained) == text.count("kind")
    for config in trained:
        (corpus,) = config.data
        assert corpus.path == str(talk / "train.jsonl")
        assert [dialogue.id for dialogue in read_source(corpus, finder([]))] == ["d0", "d2"]
    assert not caplog.messages


@pytest.mark.parametrize("dialogues", [[["alone"]], [["a", "same"], ["b", "same"]]])
def test_a_corpus_without_a_wrong_response_is_refused(
    tmp_path: Path, dialogues: list[list[str]]
) -> None:
    path = write_dialogues(tmp_path / "d.jsonl", dialogues)
    with pytest.raises(DataError, match=r"d\.jsonl: has no two different responses"):
        read_pairs(PairCorpus(path=str(path)), Path, 3, lambda _: False)


def test_pairs_of_nli_have_one_of_three_labels(small_corpora: Path, tmp_path: Path) -> None:
    pairs = list(read_nli(small_corpora / "nli.jsonl"))
    assert pairs[:2] == [NliPair("p 0", "h 0", 0), NliPair("p 1", "h 1", 1)]
    path = tmp_path / "nli.jsonl"
    unlabelled = {"premise": "p", "hypothesis": "h", "label": "-"}  # as SNLI has some
    path.write_text((small_corpora / "nli.jsonl").read_text() + "\n" + json.dumps(unlabelled))
    with pytest.raises(DataError, match="must be one of entailment, neutral, contra") as caught:
        list(read_nli(path))
    assert (caught.value.line, caught.value.field) == (10, "label")
    path.write_text("\n")
    with pytest.raises(DataError, match=r"nli\.jsonl: has no pair"):
        list(read_nli(path))


def test_translations_have_a_source_and_a_target(tmp_path: Path) -> None:
    path = tmp_path / "parallel.jsonl"
    path.write_text('{"source": "a lake", "target": "ein See"}\n')
    assert read_translations(path) == [("a lake", "ein See")]
    path.write_text('{"source": "a lake"}\n')
    with pytest.raises(DataError, match=r'parallel\.jsonl, line 1, field "target": missing'):
        read_translations(path)
    path.write_text("")
    with pytest.raises(DataError, match=r"parallel\.jsonl: has no pair"):
        read_translations(path)


def test_validation_draws_the_same_dialogues_from_all_of_a_file(tmp_path: Path) -> None:
    dialogues = [[f"a {n}", f"b {n}"] for n in range(400)]
    path = str(write_dialogues(tmp_path / "d.jsonl", dialogues))
    validation = Validation(paths=(path,), dialogues=20)
    drawn = [int(d.id[1:]) for d in validation_dialogues(validation, Path, 1)[path]]
    assert drawn == sorted(set(drawn))
    assert (len(drawn), drawn[0] < 100, drawn[-1] > 300) == (20, True, True)
    again = validation_dialogues(validation, Path, 1)[path]
    assert [int(d.id[1:]) for d in again] == drawn
    whole = Validation(paths=(path,), dialogues=1000)
    assert len(validation_dialogues(whole, Path, 1)[path]) == 400
    with pytest.raises(DataError, match=f"{path}: has no dialogue of more than 2 utterances"):
        validation_dialogues(Validation(paths=(path,)), Path, 2)


def test_a_dialogue_that_validates_is_not_trained_on(tmp_path: Path) -> None:
    dialogues = [[f"a {n}", f"b {n}", f"c {n}"] for n in range(40)]
    path = str(write_dialogues(tmp_path / "d.jsonl", dialogues))
    copies = str(write_dialogues(tmp_path / "copies.jsonl", [*dialogues[::-1], ["a", "b"]]))
    validation = Validation(paths=(path,), dialogues=15)
    drawn = validation_dialogues(validation, Path, 1)[path]
    assert validation_texts(validation, Path) == {dialogue.texts for dialogue in drawn}
    apart = validation_texts(validation, Path)
    for file, rest in ((path, 25), (copies, 26)):
        windows = read_windows(WindowCorpus(path=file), Path, apart)
        assert len({window.dialogue.id for window in windows}) == rest
        assert not apart & {window.dialogue.texts for window in windows}
        pairs = read_pairs(PairCorpus(path=file), Path, 3, lambda _: False, apart)
        assert len({pair.utterances[0].text for pair in pairs}) == rest
    windows = read_windows(WindowCorpus(path=path, skip=38), Path)
    assert [window.dialogue.id for window in windows[::2]] == ["d38", "d39"]
    for skip in (40, 50):
        with pytest.raises(DataError, match=f"{path}: has no dialogue to train on: all"):
            read_windows(WindowCorpus(path=path, skip=skip), Path)
    everything = validation_texts(Validation(paths=(path,)), Path)
    with pytest.raises(DataError, match=f"{path}: has no dialogue to train on: all are left out"):
        read_windows(WindowCorpus(path=path), Path, everything)


def test_a_copy_with_other_speakers_or_choices_is_not_trained_on(tmp_path: Path) -> None:
    path = str(write_dialogues(tmp_path / "d.jsonl", [["a", "b"]]))
    apart = validation_texts(Validation(paths=(path,)), Path)
    copies = tmp_path / "copies.jsonl"
    for user, shown in (("A", {"shown": ["c"]}), ("guest", {})):
        said = [{"speaker": user, "text": "a"}, {"speaker": "B", "text": "b", **shown}]
        copies.write_text(json.dumps({"utterances": said}))
        with pytest.raises(DataError, match="has no dialogue to train on"):
            read_windows(WindowCorpus(path=str(copies)), Path, apart)


def test_each_utterance_answers_the_ones_before_it() -> None:
    said = tuple(Utterance("AB"[n % 2], f"{n}") for n in range(5))
    pairs = pairs_of(Dialogue("d", said), turns=2)
    assert [pair.target for pair in pairs] == list(said[1:])
    assert [pair.utterances for pair in pairs] == [said[:1], said[:2], said[1:3], said[2:4]]
    assert pairs_of(Dialogue("d", said[:1]), turns=2) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["train", "plain"])
def test_the_everyday_dialogues_are_as_their_readme_says(name: str) -> None:
    dialogues = list(read_dialogues(finder([])(f"everyday/{name}.jsonl.xz")))
    utterances = [u.text for dialogue in dialogues for u in dialogue.utterances]
    assert len({dialogue.id for dialogue in dialogues}) == len(dialogues)
    assert len({dialogue.utterances for dialogue in dialogues}) == len(dialogues)
    assert min(len(dialogue.utterances) for dialogue in dialogues) >= 3
    assert all(text.isprintable() for text in utterances)
    readme = (OWN_CORPORA / "everyday" / "README.md").read_text(encoding="utf-8")
    counted = re.search(rf"`{name}\.jsonl\.xz` \| ([\d,]+) dialogues with ([\d,]+) utter", readme)
    assert counted
    assert [int(number.replace(",", "")) for number in counted.groups()] == [
        len(dialogues),
        len(utterances),
    ]
