from pathlib import Path

import pytest
import torch

from turnwise.models.errors import ConfigError
from turnwise.models.roles import EncoderKind
from turnwise.models.training.config import Section, TrainConfig, native_precision, read_config
from turnwise.models.training.reranker_config import IoIConfig, PairwiseConfig

GOOD = """
kind = "triple"
base = "some/model"
data = [{path = "a.jsonl", views = 10}]
[objectives]
c3l = 1.0
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_a_minimal_file_is_enough(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, GOOD), TrainConfig)
    assert config.kind is EncoderKind.TRIPLE
    assert config.data[0].views == 10
    assert config.objectives.window == 5


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('kind = "triple"', 'kind = "tripel"', "kind"),
        ('base = "some/model"', "", "base"),
        ("views = 10", "views = 0", "data.0.views"),
        ("c3l = 1.0", "c3l = -1.0", "objectives.c3l"),
        ("c3l = 1.0", "cl3 = 1.0", "objectives.cl3"),
        ("c3l = 1.0", "c3l = 1.0\nquery_rows = []", "objectives.query_rows"),
        ('kind = "triple"', 'kind = "triple"\nturns = 1', "turns"),
        ('kind = "triple"', 'kind = "triple"\nseed = -1', "seed"),
        ('kind = "triple"', 'kind = "triple"\nseed = 4294967296', "seed"),
        (
            'kind = "triple"',
            'kind = "triple"\naggregation = { name = "last_rows", last_rows = 0 }',
            "aggregation.last_rows",
        ),
    ],
)
def test_errors_name_the_file_and_the_field(tmp_path: Path, old: str, new: str, field: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_config(path, TrainConfig)
    assert caught.value.file == str(path)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("c3l = 1.0", "nli = 1.0", "no such table"),
        (
            "c3l = 1.0",
            "c3l = 1.0\nquery_rows = [0, 2, 0]",
            "query_rows: one of them is named",
        ),
        ("c3l = 1.0", 'c3l = 1.0\n[nli]\npaths = ["b.jsonl"]', "objectives.nli: has no weight"),
        ("c3l = 1.0", "c3l = 0.0", "none of them"),
        ("c3l = 1.0", "c3l = 1.0\nwindow = 2", "window of at least 3"),
        ('kind = "triple"', 'kind = "triple"\nturns = 4', "turns: shorter than objectives.window"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"run\.toml: (?!Value error).*{said}"):
        read_config(write(tmp_path, GOOD.replace(old, new)), TrainConfig)


@pytest.mark.parametrize(
    ("kind", "objectives", "said"),
    [
        ("single", "order = 1.0", "kind: a single encoder tells no order"),
        ("single", "reach = 1.0", "kind: a single encoder tells no order"),
        ("single", "ccl = 1.0", "kind: a single encoder tells no order"),
        ("curved", "c3l = 1.0\ndirectional_triples = true", "only a triple encoder"),
    ],
)
def test_a_kind_is_not_taught_an_order_that_it_cannot_tell(
    tmp_path: Path, kind: str, objectives: str, said: str
) -> None:
    text = GOOD.replace("triple", kind).replace("c3l = 1.0", objectives)
    with pytest.raises(ConfigError, match=said):
        read_config(write(tmp_path, text), TrainConfig)


def test_a_single_encoder_may_learn_what_has_no_order(tmp_path: Path) -> None:
    objectives = "ccl = 1.0\ndirectional = false\nrunning_query = 1.0"
    text = GOOD.replace("triple", "single").replace("c3l = 1.0", objectives)
    assert read_config(write(tmp_path, text), TrainConfig).kind is EncoderKind.SINGLE


@pytest.mark.parametrize(
    ("schema", "rest"),
    [(PairwiseConfig, 'base = "x"\nkind = "pairwise"'), (IoIConfig, 'kind = "ioi"')],
)
def test_a_seed_is_one_that_every_generator_takes(
    tmp_path: Path, schema: type[Section], rest: str
) -> None:
    path = write(tmp_path, f'{rest}\nseed = -1\ndata = [{{path = "a.jsonl"}}]')
    with pytest.raises(ConfigError) as caught:
        read_config(path, schema)
    assert caught.value.field == "seed"


def test_turns_may_be_fewer_than_a_window_that_no_objective_uses(tmp_path: Path) -> None:
    text = GOOD.replace('kind = "triple"', 'kind = "triple"\nturns = 4')
    config = read_config(write(tmp_path, text.replace("c3l", "running_query")), TrainConfig)
    assert config.turns == 4


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(GOOD.lstrip(), encoding="utf-8-sig")  # as some editors begin a file
    assert read_config(path, TrainConfig).kind is EncoderKind.TRIPLE


def test_no_toml_and_no_file_are_errors_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.toml"):
        read_config(write(tmp_path, "kind = "), TrainConfig)
    with pytest.raises(ConfigError, match="absent"):
        read_config(tmp_path / "absent.toml", TrainConfig)


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
