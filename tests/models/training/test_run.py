import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.models.training.conftest import Folder, write_dialogues
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import DataError, TrainingError, TurnwiseError
from turnwise.models.rerankers import reranker_kind
from turnwise.models.roles import EncoderKind
from turnwise.models.training.run import run
from turnwise.models.training.trainer import Progress

STAGES = """
[[stage]]
kind = "curved"
[[stage]]
kind = "triple"
"""


def write_corpora(folder: Path) -> Path:
    desk = folder / "corpora" / "desk"
    desk.mkdir(parents=True)
    dialogues = [[f"matter {n} step {t}" for t in range(11)] for n in range(8)]
    for split in ("train", "validation"):
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
batch_windows = 8
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


@pytest.fixture(scope="session")
def finished(tiny_encoder_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration of two stages, its corpora, and its finished run in `out`."""
    folder = tmp_path_factory.mktemp("finished")
    write_corpora(folder)
    config = write_config(folder, tiny_encoder_folder(EncoderKind.SINGLE), STAGES)
    run(config, [folder / "corpora"], folder / "out")
    return folder


@pytest.fixture
def staged(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to change."""
    return Path(shutil.copytree(finished, tmp_path / "staged"))


def steps_of(train: Callable[..., Path], **options: object) -> list[int]:
    seen: list[Progress] = []
    train(report=seen.append, **options)
    return [progress.step for progress in seen]


@pytest.mark.train
def test_corpora_are_found_in_the_folders_and_ranks_are_validated(
    corpora: Path, tmp_path: Path, plain: Path
) -> None:
    seen: list[Progress] = []
    model = run(write_config(tmp_path, plain), [corpora], tmp_path / "out", report=seen.append)
    assert UtteranceEncoder(model).kind is EncoderKind.TRIPLE
    (validated,) = [progress.validation for progress in seen if progress.validation]
    assert list(validated)[:3] == ["relative_rank", "average_rank", "short_term_rank"]
    assert "desk/validation.jsonl/average_rank" in validated
    assert 1 <= validated["average_rank"] <= 8
    one = "desk/validation.jsonl/"
    assert validated["relative_rank"] == validated[one + "relative_rank"]
    assert 0 < validated["relative_rank"] < 2


@pytest.mark.train
def test_a_task_that_short_dialogues_cannot_measure_is_left_out(
    corpora: Path, tmp_path: Path, plain: Path
) -> None:
    file = write_dialogues(corpora / "desk" / "validation.jsonl", [["step 0", "step 1", "step 2"]])
    seen: list[Progress] = []
    config = write_config(tmp_path, plain)
    run(config, [corpora], tmp_path / "out", report=seen.append)
    (validated,) = [progress.validation for progress in seen if progress.validation]
    names = ["relative_rank", "average_rank"]
    assert list(validated) == [*names, *(f"desk/validation.jsonl/{name}" for name in names)]
    write_dialogues(file, [["step 0", "step 1"]])
    with pytest.raises(DataError, match=f"{file}: has no dialogue of more than 2 utterances"):
        run(config, [corpora], tmp_path / "out")


@pytest.mark.parametrize("stages", ['kind = "triple"', STAGES])
def test_a_corpus_that_is_nowhere_is_named(
    corpora: Path, tmp_path: Path, plain: Path, stages: str
) -> None:
    config = write_config(tmp_path, plain, stages, data="nowhere.jsonl")
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        run(config, [corpora], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.train
def test_files_take_the_place_of_the_corpora_in_all_stages(
    corpora: Path, tmp_path: Path, plain: Path
) -> None:
    config = write_config(tmp_path, plain, STAGES, data="nowhere.jsonl")
    own = corpora / "desk" / "train.jsonl"
    assert steps_of(partial(run, config, [own, corpora], tmp_path / "out")) == [1, 2, 1, 2]


@pytest.mark.train
def test_each_stage_starts_from_the_model_of_the_one_before(
    finished: Path, tmp_path: Path, plain: Path
) -> None:
    assert UtteranceEncoder(finished / "out" / "model").kind is EncoderKind.TRIPLE
    assert UtteranceEncoder(finished / "out" / "base" / "model").kind is EncoderKind.CURVED
    card = json.loads((finished / "out" / "model" / "turnwise.json").read_text())
    assert card["trained"]["base"] == str(finished / "out" / "base" / "model")
    alone = write_config(tmp_path, plain, 'kind = "curved"')
    first = run(alone, [finished / "corpora"], tmp_path / "alone")
    stage, only = (
        load_file(folder / "model.safetensors") for folder in (finished / "out/base/model", first)
    )
    assert all(torch.equal(weights, only[name]) for name, weights in stage.items())


@pytest.mark.train
def test_a_finished_run_has_nothing_to_resume_wherever_it_and_its_files_lie(
    staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(staged)
    again = partial(run, staged / "desk.toml", resume=True)
    own = Path("corpora/desk/train.jsonl")
    assert steps_of(partial(again, [Path("corpora")], Path("out"))) == []
    moved = Path("out").rename(staged / "moved")
    assert steps_of(partial(again, [own.absolute(), Path("corpora")], moved)) == []
    other = own.rename(own.with_name("other.jsonl"))
    with pytest.raises(TrainingError, match="another run, which differs in data;"):
        again([other, Path("corpora")], moved)


@pytest.mark.train
def test_a_staged_run_resumes_at_the_stage_that_was_interrupted(staged: Path) -> None:
    def stop(progress: Progress) -> None:
        reported.append(progress.step)
        if len(reported) == 3:
            raise KeyboardInterrupt

    reported: list[int] = []
    again = partial(run, staged / "desk.toml", [staged / "corpora"], staged / "out")
    with pytest.raises(KeyboardInterrupt):
        again(report=stop)
    assert steps_of(again, resume=True) == [1, 2]


@pytest.mark.train
def test_a_new_run_leaves_no_stage_of_an_earlier_one_to_resume(staged: Path) -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    again = partial(run, staged / "desk.toml", [staged / "corpora"], staged / "out")
    with pytest.raises(KeyboardInterrupt):
        again(report=stop)
    assert steps_of(again, resume=True) == [1, 2, 1, 2]


@pytest.mark.train
def test_a_run_that_cannot_begin_leaves_an_earlier_one_to_resume(staged: Path, plain: Path) -> None:
    config = staged / "desk.toml"
    again = partial(run, config, [staged / "corpora"], staged / "out")
    right = config.read_text()
    for mistyped in ("desk/train.jsonl", str(plain)):
        config.write_text(right.replace(mistyped, str(staged / "nowhere")))
        with pytest.raises(TurnwiseError, match="nowhere"):
            again()
    config.write_text(right)
    assert steps_of(again, resume=True) == []


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
    assert (caught.value.line, caught.value.field) == (9, "utterances[0].text")
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
def test_the_last_stage_alone_is_calibrated(finished: Path) -> None:
    encoder = UtteranceEncoder(finished / "out" / "model")
    before = UtteranceEncoder(finished / "out" / "base" / "model")
    assert before.calibration is None
    assert encoder.calibration is not None
    assert encoder.calibration.fitted["answers"] > 0
    card = json.loads((finished / "out" / "model" / "turnwise.json").read_text())
    assert card["aggregation"]["name"] == encoder.aggregation.name
    assert card["encoder"]["fingerprint"] == encoder.fingerprint


@pytest.mark.train
@pytest.mark.parametrize("values", ["calibration_pool = 0", 'aggregation = {name = "max_sim"}'])
def test_a_recipe_can_do_without_a_calibration(
    corpora: Path, tmp_path: Path, plain: Path, values: str
) -> None:
    config = write_config(tmp_path, plain, f'kind = "triple"\n{values}')
    model = run(config, [corpora], tmp_path / "out")
    assert UtteranceEncoder(model).calibration is None
