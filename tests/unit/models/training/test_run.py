import json
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from huggingface_hub import constants

from tests.unit.models.conftest import Folder
from tests.unit.models.training.conftest import write_dialogues
from turnwise.models.card import reranker_kind
from turnwise.models.encoder.example_space import ExampleSpace, load_example_space
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError, ModelError, TrainingError, TurnwiseError
from turnwise.models.evaluation.confidence import FirstCandidates
from turnwise.models.roles import EncoderKind
from turnwise.models.training import calibration
from turnwise.models.training.calibration import calibrate, search_answers
from turnwise.models.training.config import read_stages
from turnwise.models.training.corpora import finder
from turnwise.models.training.run import run
from turnwise.models.training.trainer import StepReport

RESEARCH = Path(__file__).parents[4] / "research"

STAGES = """
[[stage]]
kind = "curved"
[[stage]]
kind = "triple"
"""


def write_corpora(folder: Path) -> Path:
    desk = folder / "corpora" / "desk"
    desk.mkdir(parents=True)
    for split, turns in (("train", 11), ("validation", 12)):
        dialogues = [[f"matter {n} step {t}" for t in range(turns)] for n in range(6)]
        write_dialogues(desk / f"{split}.jsonl", dialogues)
    return desk.parent


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    return write_corpora(tmp_path)


def write_config(
    folder: Path, base: Path, stages: str = 'kind = "triple"', data: str = "desk/train.jsonl"
) -> Path:
    path = folder / "desk.toml"
    head, tail = (stages, "") if stages.startswith("kind") else ("", stages)
    path.write_text(
        f"""
{head}
base = "{base}"
batch_windows = 6
precision = "float32"
data = [{{path = "{data}"}}]
[objectives]
running_query = 1.0
[validation]
paths = ["desk/validation.jsonl"]
every = 2
{tail}"""
    )
    return path


@pytest.fixture
def plain(tiny_encoder_folder: Folder) -> Path:
    return tiny_encoder_folder(EncoderKind.SINGLE)


class Finished(NamedTuple):
    folder: Path
    """It has a configuration of two stages, its corpora, and its run in `out`."""
    seen: list[StepReport]

    @property
    def model(self) -> Path:
        return self.folder / "out" / "model"

    @property
    def base(self) -> Path:
        return self.folder / "out" / "base" / "model"


@pytest.fixture(scope="session")
def finished(tiny_encoder_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    seen: list[StepReport] = []
    write_corpora(folder)
    base = shutil.copytree(tiny_encoder_folder(EncoderKind.SINGLE), folder / "single")
    ExampleSpace(np.zeros(32, np.float32), np.eye(32, dtype=np.float32)).save(base)
    config = write_config(folder, base, STAGES)
    run(config, [folder / "corpora"], folder / "out", report=seen.append)
    return Finished(folder, seen)


@pytest.fixture
def staged(finished: Finished, tmp_path: Path) -> Path:
    """A copy of its folder, to change."""
    return Path(shutil.copytree(finished.folder, tmp_path / "staged"))


def steps_of(train: Callable[..., Path], **options: object) -> list[int]:
    seen: list[StepReport] = []
    train(report=seen.append, **options)
    return [progress.step for progress in seen]


@pytest.mark.train
def test_each_stage_is_validated(finished: Finished) -> None:
    _, validated = [progress.validation for progress in finished.seen if progress.validation]
    tasks = ["average_rank", "short_term_rank", "long_term_rank"]
    assert list(validated) == ["relative_rank", *tasks]
    assert 1 <= validated["average_rank"] <= 6
    assert 0 < validated["relative_rank"] < 2


@pytest.mark.train
def test_each_stage_starts_from_the_model_of_the_one_before(finished: Finished) -> None:
    assert UtteranceEncoder(finished.model).kind is EncoderKind.TRIPLE
    assert UtteranceEncoder(finished.base).kind is EncoderKind.CURVED
    card = json.loads((finished.model / "turnwise.json").read_text())
    assert card["trained"]["base"] == str(finished.base)
    assert load_example_space(finished.model) is not None, "the base of the first stage has one"


@pytest.mark.train
def test_a_staged_run_resumes_at_the_stage_that_was_interrupted(staged: Path) -> None:
    def stop(progress: StepReport) -> None:
        reported.append(progress.step)
        if len(reported) == 3:
            raise KeyboardInterrupt

    reported: list[int] = []
    again = partial(run, staged / "desk.toml", [staged / "corpora"], staged / "out")
    with pytest.raises(KeyboardInterrupt):
        again(report=stop)
    assert steps_of(again, resume=True) == [1, 2]


@pytest.mark.train
def test_a_new_run_leaves_no_stage_of_an_earlier_one_to_resume(
    staged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(_: StepReport) -> None:
        raise KeyboardInterrupt

    (staged / "out" / "other" / "checkpoint").mkdir(parents=True)  # of no stage of this run
    again = partial(run, staged / "desk.toml", [staged / "corpora"], staged / "out")
    with pytest.raises(KeyboardInterrupt):
        again(report=stop)
    assert steps_of(again, resume=True) == [1, 2, 1, 2]
    told = [record.getMessage() for record in caplog.records if "the run" in record.msg]
    assert told == [
        f"the run in {staged / 'out'} is replaced; --resume would have continued it",
        f"{staged / 'out'} has no checkpoint: the run starts from the beginning",
    ]


@pytest.mark.train
def test_a_run_that_cannot_begin_leaves_an_earlier_one_to_resume(
    finished: Finished, staged: Path
) -> None:
    config = staged / "desk.toml"
    again = partial(run, config, [staged / "corpora"], staged / "out")
    right = config.read_text()
    for mistyped in ("desk/train.jsonl", str(finished.folder / "single")):
        config.write_text(right.replace(mistyped, str(staged / "nowhere")))
        with pytest.raises(TurnwiseError, match="nowhere"):
            again()
    config.write_text(right)
    assert steps_of(again, resume=True) == []


@pytest.mark.train
@pytest.mark.parametrize("base", ["model", "base/model"])
def test_a_run_does_not_replace_its_base(staged: Path, base: str) -> None:
    again = staged / "out" / base
    config = staged / "desk.toml"
    config.write_text(re.sub('base = ".*"', f'base = "{again}"', config.read_text()))
    with pytest.raises(TrainingError, match=f"would replace its base '{again}'"):
        run(config, [staged / "corpora"], staged / "out")


def test_missing_minimal_pairs_of_a_later_stage_are_reported_before_the_first_is_trained(
    corpora: Path, tmp_path: Path, plain: Path
) -> None:
    pairs = 'minimal_pairs = {paths = ["nowhere.jsonl"]}\nobjectives.minimal_pairs = 1.0'
    config = write_config(tmp_path, plain, STAGES + pairs)
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        run(config, [corpora], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["train.jsonl", "validation.jsonl"])
def test_wrong_data_of_a_later_stage_is_reported_before_the_first_is_trained(
    corpora: Path, tmp_path: Path, plain: Path, file: str
) -> None:
    shutil.copytree(corpora / "desk", corpora / "second")
    second = (
        'data = [{path = "second/train.jsonl"}]\nvalidation.paths = ["second/validation.jsonl"]'
    )
    config = write_config(tmp_path, plain, STAGES + second)
    with (corpora / "second" / file).open("a") as wrong:
        wrong.write('\n{"utterances": [{"speaker": "A", "text": 3}]}')
    with pytest.raises(DataError) as caught:
        run(config, [corpora], tmp_path / "out")
    assert caught.value.file == str(corpora / "second" / file)
    assert (caught.value.line, caught.value.field) == (7, "utterances[0].text")
    assert not (tmp_path / "out").exists()


def test_wrong_answers_are_reported_before_the_model_is_trained(
    corpora: Path, tmp_path: Path, plain: Path
) -> None:
    answers = '[answers]\npools = ["answers/shop.jsonl.xz", "answers/nowhere.jsonl"]'
    config = write_config(tmp_path, plain)
    config.write_text(f"{config.read_text()}\n{answers}")
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        run(config, [corpora], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "base", "module"),
    [("pairwise", 'base = "nowhere"', "matplotlib"), ("ioi", "", "gensim")],
)
def test_a_missing_package_is_reported_before_the_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, base: str, module: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'kind = "{kind}"\ndata = [{{path = "nowhere.jsonl"}}]\n{base}')
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TurnwiseError, match=module):
        run(path, [], tmp_path / "out")


@pytest.mark.usefixtures("unasked_hub")
@pytest.mark.parametrize("base", ["runs/nowhere", "somebody/model"])
def test_a_missing_base_is_reported_before_the_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    path = tmp_path / "config.toml"
    path.write_text(f'kind = "pairwise"\ndata = [{{path = "nowhere.jsonl"}}]\nbase = "{base}"')
    with pytest.raises(ModelError, match=f"model '{base}'.* folder"):
        run(path, [], tmp_path / "out")


@pytest.mark.train
def test_the_kind_of_a_configuration_decides_what_is_trained(
    corpora: Path, tmp_path: Path, plain: Path
) -> None:
    network = "network = {blocks = 1, dimension = 4, words = 5, turns = 2}"
    texts = {
        "pairwise": f'base = "{plain}"\nbatch_pairs = 40',
        "ioi": f"batch = 80\nword_vectors = {{epochs = 1}}\n{network}",
    }
    own = corpora / "desk" / "train.jsonl"
    for kind, text in texts.items():
        path = tmp_path / f"{kind}.toml"
        path.write_text(f'kind = "{kind}"\ndata = [{{path = "nowhere.jsonl"}}]\n{text}')
        with pytest.raises(DataError, match=r"nowhere\.jsonl"):
            run(path, [corpora], tmp_path / kind)
        assert reranker_kind(run(path, [own, corpora], tmp_path / kind)) == kind


@pytest.mark.train
def test_the_last_stage_alone_is_calibrated(finished: Finished) -> None:
    encoder = UtteranceEncoder(finished.model)
    assert UtteranceEncoder(finished.base).calibration is None
    assert encoder.calibration is not None
    assert encoder.calibration.fitted["answers"] > 0
    card = json.loads((finished.model / "turnwise.json").read_text())
    assert card["aggregation"]["name"] == encoder.aggregation.name
    assert card["encoder"]["fingerprint"] == encoder.fingerprint


@pytest.mark.train
@pytest.mark.parametrize("values", ["calibration_pool = 0", 'aggregation = {name = "max_sim"}'])
def test_a_recipe_can_do_without_a_calibration(
    finished: Finished, tmp_path: Path, values: str
) -> None:
    recipe = tmp_path / "desk.toml"
    recipe.write_text(values + (finished.folder / "desk.toml").read_text())
    _, last = read_stages(recipe)
    calibrate(finished.base, last, finder([finished.folder / "corpora"]))
    assert UtteranceEncoder(finished.base).calibration is None


@pytest.mark.train
@pytest.mark.parametrize("right", [True, False])
def test_answers_that_are_all_right_or_all_wrong_say_nothing_about_a_confidence(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    def answered(*given: Any) -> FirstCandidates:
        answers = search_answers(*given)
        assert answers.right.any()
        return replace(answers, right=np.full_like(answers.right, right))

    monkeypatch.setattr(calibration, "search_answers", answered)
    _, last = read_stages(finished.folder / "desk.toml")
    calibrate(finished.base, last, finder([finished.folder / "corpora"]))
    assert UtteranceEncoder(finished.base).calibration is None


def test_ablations_train_each_variant_from_the_one_before_it(
    corpora: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = """
[measure]
path = "desk/validation.jsonl"
dialogues = 4
[small]
epochs = 1
[[variant]]
name = "ccl"
kind = "curved"
objectives = { ccl = 1.0 }
[[variant]]
name = "c3l"
after = "ccl"
against = "ccl"
objectives = { c3l = 1.0 }
"""
    recipe = write_config(tmp_path, plain)
    out = tmp_path / "out"
    recipe.write_text(recipe.read_text() + variants)
    script = str(RESEARCH / "ablations.py")
    monkeypatch.setattr(
        sys, "argv", [script, str(recipe), "--data", str(corpora), "--out", str(out), "--small"]
    )
    runpy.run_path(script, run_name="__main__")
    learned = json.loads((out / "c3l" / "model" / "turnwise.json").read_text())["trained"]
    assert learned["base"] == str(out / "ccl" / "model")
    table = (out / "results.md").read_text().splitlines()[2:]  # below the heading
    assert table[0].startswith("| variant | steps | mean | difference | ")
    first, second = (row.split(" | ") for row in table[2:4])
    assert (first[0], second[0]) == ("| ccl", "| c3l (ccl)")
    assert int(second[1]) == 2 * int(first[1])
    assert first[3] == ""
    assert second[3].startswith(("+", "-"))


@pytest.mark.parametrize(("recipe", "count"), [("c3l", 14), ("ioi", 15)])
def test_the_variants_of_the_studies_can_be_read(recipe: str, count: int) -> None:
    read = runpy.run_path(str(RESEARCH / "ablations.py"))["read_variants"]
    for small in (True, False):
        assert len(read(RESEARCH / f"{recipe}.toml", Path("out"), small=small)) == count
