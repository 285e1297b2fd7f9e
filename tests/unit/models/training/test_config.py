from pathlib import Path

import pytest
import torch

from turnwise.models import DEFAULT_MODEL
from turnwise.models.errors import ConfigError
from turnwise.models.roles import EncoderKind
from turnwise.models.training.config import EncoderConfig, native_precision, read_stages

GOOD = """
kind = "triple"
base = "some/model"
data = [{path = "a.jsonl", windows = 10}]
[objectives]
c3l = 1.0
"""
IOI = 'kind = "ioi"\ndata = [{path = "y"}]\n'
STAGED = (
    GOOD
    + """
[validation]
paths = ["v.jsonl"]
every = 9
[[stage]]
kind = "curved"
objectives = {c3l = 0, ccl = 2}
[[stage]]
validation = {every = 5}
data = [{path = "b.jsonl"}]
[small]
turns = 6
validation = {every = 3}
"""
)


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def read_one(path: Path) -> EncoderConfig:
    (config,) = read_stages(path)
    assert isinstance(config, EncoderConfig)
    return config


def of(values: str, old: str, new: str) -> str:
    """Return values in which some differ."""
    assert old in values
    return values.replace(old, new)


KIND = 'kind = "triple"'
C3L = "c3l = 1.0"
LAST = "validation = {every = 5}"
FIELDS = [
    (of(GOOD, KIND, 'kind = "tripel"'), "kind"),
    (of(GOOD, 'base = "some/model"', ""), "base"),
    (of(GOOD, 'base = "some/model"', 'base = ""'), "base"),
    (of(GOOD, KIND, f"{KIND}\ncalibration_pool = 1"), "calibration_pool"),
    (of(GOOD, KIND, f'{KIND}\nvalidation.paths = [""]'), "validation.paths.0"),
    (of(GOOD, KIND, f'{KIND}\nanswers.pools = ["a.jsonl"]'), "answers.pools"),
    (of(GOOD, C3L, "cl3 = 1.0"), "objectives.cl3"),
    (of(GOOD, C3L, f"{C3L}\nquery_rows = []"), "objectives.query_rows"),
    (of(GOOD, KIND, f"{KIND}\nseed = -1"), "seed"),
    (of(GOOD, KIND, f"{KIND}\nseed = 4294967296"), "seed"),
    (of(GOOD, KIND, f"{KIND}\naggregation.last_rows = 0"), "aggregation.last_rows"),
    ('kind = "pairwise"\ndata = [{path = "y"}]', "base"),
    ('kind = "pairwise"\nbase = "x"\ndata = [{path = "y", windows = 3}]', "data.0.windows"),
    ('kind = "pairwise"\nbase = "x"\ndata = []', "data"),
    (f"{IOI}[network]\nmatrices = [4]", "network.matrices.0"),
    (f"{IOI}[network]\nvocabulary = 4", "network.vocabulary"),
    ('kind = "dse"', "kind"),
    ('base = "x"', "kind"),
    (of(STAGED, 'kind = "curved"', 'kind = "curved"\nturns = 1'), "stage.0.turns"),
    (of(STAGED, LAST, 'base = "x"'), "stage.1.base"),
    (of(STAGED, LAST, "gradient_cache = true"), "stage.1.gradient_cache"),
]
CONTRADICTIONS = [
    ("kind = ", ""),
    (of(GOOD, C3L, "nli = 1.0"), r"table \[nli\] is missing"),
    (of(GOOD, C3L, "similarity = 1.0"), r"table \[similar\] is missing"),
    (of(GOOD, C3L, "minimal_pairs = 1.0"), r"table \[minimal_pairs\] is missing"),
    (
        of(GOOD, C3L, f'{C3L}\n[minimal_pairs]\npaths = ["b.jsonl"]'),
        "objectives.minimal_pairs: has no weight",
    ),
    (of(GOOD, KIND, 'kind = "single"\nnoise = 0.5'), "noise: a single encoder"),
    (of(GOOD, C3L, f"{C3L}\nquery_rows = [0, 2, 0]"), "query_rows: has the same number"),
    (of(GOOD, C3L, f'{C3L}\n[nli]\npaths = ["b.jsonl"]'), "objectives.nli: has no weight"),
    (of(GOOD, C3L, "c3l = 0.0"), "none of them"),
    (of(GOOD, C3L, "distil = 1.0"), "teacher: is missing"),
    (of(GOOD, KIND, 'kind = "heads"\nteacher = "a"'), "teacher: only objectives.distil"),
    (of(GOOD, KIND, f"{KIND}\nlayers = 0"), "layers: with 0 only heads learn"),
    (of(GOOD, C3L, f"{C3L}\nwindow = 2"), "window of at least 3"),
    (of(GOOD, KIND, f"{KIND}\nturns = 4"), "turns: shorter than objectives.window"),
    (of(GOOD, '"some/model"', '"first.toml"'), r"base: cannot be a .* \[\[stage\]\]"),
    *(
        (of(of(GOOD, "triple", "single"), C3L, f"{name} = 1.0"), "a single encoder cannot learn")
        for name in ("order", "reach", "ccl")
    ),
    (
        of(of(GOOD, "triple", "curved"), C3L, f"{C3L}\ndirectional_triples = true"),
        "only a triple encoder",
    ),
    (
        of(STAGED, LAST, 'kind = "single"\nobjectives = {c3l = 0, running_query = 1}'),
        r"stage\.1\.kind.*is single, which a curved encoder cannot become",
    ),
    *((f"{stage}\n{GOOD}", "must be tables") for stage in ("stage = 3", "stage = []")),
    (f"{IOI}[[stage]]\nseed = 1\n[[stage]]\nseed = 2", "only an encoder is trained in stages"),
    (of(STAGED, LAST, 'kind = "pairwise"'), r"stage\.1\.kind.*only an encoder is trained in"),
    (of(GOOD, C3L, f"{C3L}\n[optimizer]"), '"optimizer": is not a field of this table'),
    (of(GOOD, KIND, f"{KIND}\naggregation.rows = 1"), 'rows": is not a field of this table'),
    (of(GOOD, C3L, f'{C3L}\n[validation]\npaths = "a.jsonl"'), 'paths": must be a list'),
    (of(GOOD, KIND, f'{KIND}\naggregation = "mean"'), "aggregation.*must be a table"),
    (f"{IOI}batch = 5", "even"),
    (f"{IOI}network = {{matrices = [1, 1]}}", "has the same number twice"),
    (f"{IOI}network = {{compressed = ['self', 'self']}}", "has the same representation twice"),
]


@pytest.mark.parametrize(("text", "field"), FIELDS)
def test_errors_name_the_file_and_the_field(tmp_path: Path, text: str, field: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_stages(path)
    assert (caught.value.file, caught.value.field) == (str(path), field)


@pytest.mark.parametrize(("text", "said"), CONTRADICTIONS)
def test_values_that_contradict_each_other_are_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"run\.toml(?!.*Value error).*{said}"):
        read_stages(write(tmp_path, text))


def test_a_single_encoder_may_learn_what_has_no_order(tmp_path: Path) -> None:
    objectives = "ccl = 1.0\ndirectional = false\nrunning_query = 1.0"
    text = GOOD.replace("triple", "single").replace("c3l = 1.0", objectives)
    assert read_one(write(tmp_path, text)).kind is EncoderKind.SINGLE


@pytest.mark.parametrize(
    ("able", "precision"),
    [
        ({"avx512_f": True, "avx512_bf16": False}, "float32"),
        ({"avx512_f": True, "avx512_bf16": True}, "bfloat16"),
        ({"neon": True, "bf16": True}, "bfloat16"),
    ],
)
def test_training_is_in_bfloat16_only_where_the_processor_computes_in_it(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], precision: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert native_precision() == precision


def test_names_of_before_still_work(tmp_path: Path) -> None:
    text = GOOD.replace("windows = 10", "views = 10").replace("data", "batch_views = 7\ndata")
    config = read_one(write(tmp_path, text))
    assert (config.batch_windows, config.data[0].windows) == (7, 10)


def test_a_removed_field_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="was removed; delete this line") as caught:
        read_one(write(tmp_path, "gradient_cache = true\n" + GOOD))
    assert caught.value.field == "gradient_cache"


def test_stages_share_the_values_outside_of_them(tmp_path: Path) -> None:
    first, second = read_stages(write(tmp_path, STAGED))
    assert isinstance(first, EncoderConfig)
    assert isinstance(second, EncoderConfig)
    assert (first.kind, second.kind) == (EncoderKind.CURVED, EncoderKind.TRIPLE)
    assert (first.objectives.ccl, first.objectives.c3l) == (2, 0)
    assert (second.objectives.ccl, second.objectives.c3l) == (0, 1)
    assert [c.validation.every for c in (first, second)] == [9, 5]
    assert [c.validation.paths for c in (first, second)] == [("v.jsonl",)] * 2
    assert [c.data[0].path for c in (first, second)] == ["a.jsonl", "b.jsonl"]


def test_small_values_replace_those_of_all_stages(tmp_path: Path) -> None:
    first, second = read_stages(write(tmp_path, STAGED), small=True)
    assert [c.validation.every for c in (first, second)] == [3, 3]
    assert [c.data[0].path for c in (first, second)] == ["a.jsonl", "b.jsonl"]
    assert [c.turns for c in (first, second) if isinstance(c, EncoderConfig)] == [6, 6]
    with pytest.raises(ConfigError, match="there is no small run"):
        read_stages(write(tmp_path, GOOD), small=True)


def test_the_shipped_recipes_can_be_read() -> None:
    recipes = DEFAULT_MODEL.parent / "training" / "recipes"
    stages = {path.stem: read_stages(path) for path in sorted(recipes.glob("*.toml"))}
    assert {name: len(of_recipe) for name, of_recipe in stages.items()} == {
        "c3l": 2,
        "ccl": 1,
        "dailydialog": 1,
        "default": 7,
        "german": 1,
        "ioi": 1,
        "multilingual": 1,
        "own": 1,
        "pairwise": 1,
        "reranker": 1,
        "small": 1,
    }
    small = {
        name: read_stages(recipes / f"{name}.toml", small=True)
        for name in ("c3l", "ccl", "ioi", "pairwise", "reranker")
    }
    for of_recipe in (stages, small):
        assert of_recipe["c3l"][0] == of_recipe["ccl"][0]
    assert all(of_small != stages[name] for name, of_small in small.items())
