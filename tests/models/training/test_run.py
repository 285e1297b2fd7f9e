import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import ConfigError, DataError, TrainingError, TurnwiseError
from turnwise.models.rerankers import reranker_kind
from turnwise.models.roles import EncoderKind
from turnwise.models.training.config import TrainConfig
from turnwise.models.training.loop import Progress
from turnwise.models.training.run import read_any_config, read_stages, run

Folder = Callable[[EncoderKind], Path]


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    folder = tmp_path / "corpora" / "desk"
    folder.mkdir(parents=True)
    dialogues = [
        {
            "id": f"d{n}",
            "utterances": [
                {"speaker": "AB"[t % 2], "text": f"matter {n} step {t}"} for t in range(11)
            ],
        }
        for n in range(8)
    ]
    for split in ("train", "validation"):
        lines = "\n".join(json.dumps(dialogue) for dialogue in dialogues)
        (folder / f"{split}.jsonl").write_text(lines)
    return tmp_path / "corpora"


def write_config(
    folder: Path, base: Path, data: str = "desk/train.jsonl", name: str = "desk.toml"
) -> Path:
    path = folder / name
    path.write_text(
        f"""
kind = "triple"
base = "{base}"
batch_views = 8
precision = "float32"
data = [{{path = "{data}"}}]
[objectives]
running_query = 1.0
[validation]
paths = ["desk/validation.jsonl"]
every = 2
"""
    )
    return path


def test_corpora_are_found_in_the_folders_and_ranks_are_validated(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    seen: list[Progress] = []
    config = write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    model = run(config, [corpora], tmp_path / "out", report=seen.append)
    assert UtteranceEncoder(model).kind is EncoderKind.TRIPLE
    validated = [progress.validation for progress in seen if progress.validation]
    assert len(validated) == 1
    assert list(validated[0])[:3] == ["average_rank", "short_term_rank", "long_term_rank"]
    assert "desk/validation.jsonl/average_rank" in validated[0]
    assert 1 <= validated[0]["average_rank"] <= 8


def test_what_short_dialogues_cannot_measure_is_left_out(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    file = corpora / "desk" / "validation.jsonl"
    said = [{"speaker": "AB"[t % 2], "text": f"step {t}"} for t in range(3)]
    file.write_text(json.dumps({"utterances": said}))
    seen: list[Progress] = []
    config = write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    run(config, [corpora], tmp_path / "out", report=seen.append)
    (validated,) = [progress.validation for progress in seen if progress.validation]
    assert list(validated) == ["average_rank", "desk/validation.jsonl/average_rank"]
    file.write_text(json.dumps({"utterances": said[:2]}))
    with pytest.raises(DataError, match=f"{file}: no dialogue in it is longer than 2"):
        run(config, [corpora], tmp_path / "out")


def test_files_take_the_place_of_the_named_corpora(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    config = write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE), data="nowhere.jsonl")
    own = corpora / "desk" / "train.jsonl"
    assert run(config, [own, corpora], tmp_path / "out").is_dir()


def test_a_corpus_that_is_nowhere_is_named(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    config = write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE), data="nowhere.jsonl")
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        run(config, [corpora], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_shipped_recipes_can_be_read() -> None:
    recipes = sorted((Path(__file__).parents[3] / "models/training/recipes").glob("*.toml"))
    assert [recipe.stem for recipe in recipes] == [
        "c3l", "ccl-small", "ccl", "dailydialog-further", "dailydialog-thrice",
        "dailydialog-twice", "dailydialog", "default", "everyday", "german-small", "ioi-small",
        "ioi", "pairwise-small", "pairwise", "public-corpora",
    ]  # fmt: skip
    for recipe in recipes:
        config = read_any_config(recipe)
        assert config.data
        if isinstance(config, TrainConfig):
            assert read_stages(recipe)[-1] == config


def test_a_base_that_is_a_configuration_is_trained_first(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    first = write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    second = write_config(tmp_path, Path("desk.toml"), name="second.toml")
    seen: list[Progress] = []
    model = run(second, [corpora], tmp_path / "out", report=seen.append)
    assert [progress.step for progress in seen] == [1, 2, 1, 2]
    alone = run(first, [corpora], tmp_path / "alone")
    first_stage, only = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "out/base/model", alone)
    )
    assert all(torch.equal(weights, only[name]) for name, weights in first_stage.items())
    assert UtteranceEncoder(model).kind is EncoderKind.TRIPLE
    seen.clear()
    run(second, [corpora], tmp_path / "out", resume=True, report=seen.append)
    assert seen == []


def test_a_new_run_leaves_nothing_of_an_earlier_one_to_resume_in_any_stage(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    second = write_config(tmp_path, Path("desk.toml"), name="second.toml")
    run(second, [corpora], tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        run(second, [corpora], tmp_path / "out", report=stop)
    seen: list[int] = []
    again = partial(run, second, [corpora], tmp_path / "out", resume=True)
    again(report=lambda progress: seen.append(progress.step))
    assert seen == [1, 2, 1, 2]


def test_what_cannot_begin_leaves_an_earlier_run_to_resume(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    base = tiny_encoder_folder(EncoderKind.SINGLE)
    first = write_config(tmp_path, base)
    second = write_config(tmp_path, Path("desk.toml"), name="second.toml")
    right = first.read_text()
    run(second, [corpora], tmp_path / "out")
    for mistyped in ("desk/train.jsonl", str(base)):
        first.write_text(right.replace(mistyped, str(tmp_path / "nowhere")))
        with pytest.raises(TurnwiseError, match="nowhere"):
            run(second, [corpora], tmp_path / "out")
    first.write_text(right)
    seen: list[Progress] = []
    run(second, [corpora], tmp_path / "out", resume=True, report=seen.append)
    assert seen == []


def test_a_run_is_taken_up_wherever_it_and_its_files_lie(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    second = write_config(tmp_path, Path("desk.toml"), name="second.toml")
    monkeypatch.chdir(tmp_path)
    run(second, [Path("corpora/desk/train.jsonl"), corpora], Path("out"))
    moved = Path("out").rename(tmp_path / "moved")
    seen: list[Progress] = []
    own = corpora / "desk" / "train.jsonl"
    run(second, [own, corpora], moved, resume=True, report=seen.append)
    assert seen == []
    other = own.rename(own.with_name("other.jsonl"))
    with pytest.raises(TrainingError, match="another run, which differs in data;"):
        run(second, [other, corpora], moved, resume=True)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_bases_that_lead_in_a_circle_are_refused(
    corpora: Path, tmp_path: Path, length: int
) -> None:
    for n in range(length):
        write_config(tmp_path, Path(f"{(n + 1) % length}.toml"), name=f"{n}.toml")
    wanted = rf"/{length - 1}\.toml, field \"base\": leads in a circle, back to '0\.toml'"
    with pytest.raises(ConfigError, match=wanted):
        run(tmp_path / "0.toml", [corpora], tmp_path / "out")


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (
            'kind = "pairwise"\nbase = "x"\ndata = [{path = "y"}]',
            r'base\.toml, field "kind": no encoder',
        ),
        (
            'kind = "triple"\nbase = "x"\ndata = [{path = "y"}]\nobjectives = {c3l = 1}',
            r'last\.toml, field "base": is a triple encoder and cannot become a curved one',
        ),
        ('kind = "triple"', r'base\.toml, field "base": Field required'),
        (None, r"base\.toml: No such file"),
    ],
)
def test_a_base_that_cannot_be_started_from_is_refused(
    tmp_path: Path, base: str | None, said: str
) -> None:
    if base is not None:
        (tmp_path / "base.toml").write_text(base)
    last = write_config(tmp_path, Path("base.toml"), name="last.toml")
    last.write_text(last.read_text().replace("triple", "curved"))
    with pytest.raises(ConfigError, match=said):
        run(last, [], tmp_path / "out")


def test_files_take_the_place_of_the_corpora_of_the_base_too(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE), "nowhere.jsonl")
    second = write_config(tmp_path, Path("desk.toml"), "nowhere.jsonl", name="second.toml")
    own = corpora / "desk" / "train.jsonl"
    seen: list[Progress] = []
    assert run(second, [own, corpora], tmp_path / "out", report=seen.append).is_dir()
    assert [progress.step for progress in seen] == [1, 2, 1, 2]


@pytest.mark.parametrize("file", ["train.jsonl", "validation.jsonl"])
def test_wrong_data_is_told_before_the_base_is_trained(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder, file: str
) -> None:
    second = write_config(tmp_path, Path("desk.toml"), "second/train.jsonl", name="second.toml")
    second.write_text(second.read_text().replace("desk/validation", "second/validation"))
    write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    shutil.copytree(corpora / "desk", corpora / "second")
    with (corpora / "second" / file).open("a") as wrong:
        wrong.write('\n{"utterances": [{"speaker": "A", "text": 3}]}')
    with pytest.raises(DataError) as caught:
        run(second, [corpora], tmp_path / "out")
    assert caught.value.file == str(corpora / "second" / file)
    assert (caught.value.line, caught.value.field) == (9, "utterances[0].text")
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_told_before_the_base_is_trained(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    write_config(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    second = write_config(tmp_path, Path("desk.toml"), "nowhere.jsonl", name="second.toml")
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        run(second, [corpora], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_wrong_configuration_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('kind = "triple"\nbase = "x"\ndata = [{path = "y"}]\nobjectives = {epochs = 3}')
    with pytest.raises(ConfigError, match="epochs"):
        run(path, [], tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('kind = "pairwise"\ndata = [{path = "y"}]', "base"),
        ('kind = "pairwise"\nbase = "x"\ndata = [{path = "y", views = 3}]', "data.0.views"),
        ('kind = "pairwise"\nbase = "x"\ndata = []', "data"),
        ('kind = "ioi"\ndata = [{path = "y"}]\n[network]\nblocks = 0', "network.blocks"),
        ('kind = "ioi"\ndata = [{path = "y"}]\n[network]\nmatrices = [4]', "network.matrices.0"),
        ('kind = "ioi"\ndata = [{path = "y"}]\n[negatives]\nhard = 2', "negatives.hard"),
        ('kind = "dse"', "kind"),
        ('base = "x"', "kind"),
    ],
)
def test_a_wrong_configuration_of_a_reranker_names_its_field(
    tmp_path: Path, text: str, field: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_any_config(path)
    assert (caught.value.file, caught.value.field) == (str(path), field)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch = 5", "even"),
        ("network = {matrices = [1, 1]}", "named twice"),
        ("negatives = {among = 20}", "negatives.hard: is 0, without which"),
        ('negatives = {encoder = "x", hard = 0}', "negatives.hard: is 0, without which"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f'kind = "ioi"\ndata = [{{path = "y"}}]\n{text}')
    with pytest.raises(ConfigError, match=said):
        read_any_config(path)


@pytest.mark.parametrize(
    ("kind", "base", "module"),
    [("pairwise", 'base = "nowhere"', "matplotlib"), ("ioi", "", "gensim")],
)
def test_a_package_that_is_missing_is_told_before_the_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, base: str, module: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'kind = "{kind}"\ndata = [{{path = "nowhere.jsonl"}}]\n{base}')
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TurnwiseError, match=module):
        run(path, [], tmp_path / "out")


def test_the_kind_of_a_configuration_decides_what_is_trained(
    corpora: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    network = "network = {blocks = 1, dimension = 4, words = 5, turns = 2}"
    texts = {
        "pairwise": f'base = "{tiny_encoder_folder(EncoderKind.SINGLE)}"\nbatch_pairs = 40',
        "ioi": f"batch = 80\nword_vectors = {{epochs = 1}}\n{network}",
    }
    own = corpora / "desk" / "train.jsonl"
    for kind, text in texts.items():
        path = tmp_path / f"{kind}.toml"
        path.write_text(f'kind = "{kind}"\ndata = [{{path = "nowhere.jsonl"}}]\n{text}')
        with pytest.raises(DataError, match=r"nowhere\.jsonl"):
            run(path, [corpora], tmp_path / kind)
        assert reranker_kind(run(path, [own, corpora], tmp_path / kind)) == kind
