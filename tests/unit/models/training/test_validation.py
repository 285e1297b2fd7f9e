from pathlib import Path
from statistics import fmean

import pytest

from tests.unit.models.conftest import Encoders, Folder
from tests.unit.models.training.conftest import write_dialogues
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.evaluation.next_utterance import evaluate_next_utterance
from turnwise.models.roles import EncoderKind
from turnwise.models.scores import Aggregation
from turnwise.models.training.config import EncoderConfig
from turnwise.models.training.validation import (
    ValidationSplit,
    encoder_validator,
    make_validation_split,
)

DIALOGUES = [
    Dialogue(f"d{n}", tuple(Utterance("AB"[t % 2], f"{n} says {t} {t * n}") for t in range(12)))
    for n in range(3)
]


def test_the_rank_is_that_of_the_aggregation_of_the_card(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    split = ValidationSplit(DIALOGUES, [], [])
    rows = evaluate_next_utterance({"x": encoder}, DIALOGUES)
    ranks = {row.system: row.metrics["average_rank"] for row in rows}
    for aggregation, name in (
        (Aggregation("last_rows", 1), "x · last 1 row"),
        (Aggregation("last_rows", 3), "x · last 3 rows"),
        (Aggregation("max_sim"), "x · MaxSim"),
    ):
        measured = split.measure(encoder, aggregation)
        assert measured["average_rank"] == pytest.approx(ranks[name])


def test_chance_is_the_middle_of_the_candidates(tiny_encoder: Encoders) -> None:
    split = make_validation_split(DIALOGUES, tiny_encoder(EncoderKind.SINGLE))
    assert split.of_chance["average_rank"] == 2.0  # of three contexts of each length
    assert split.of_chance["long_term_rank"] == 3.5
    candidates = {len(example.candidates) for example in split.examples}
    assert split.of_chance["short_term_rank"] == pytest.approx(1 + candidates.pop() / 2)


def test_a_task_that_short_dialogues_cannot_measure_is_left_out(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.SINGLE)
    short = [Dialogue(each.id, each.utterances[:3]) for each in DIALOGUES]
    measured = make_validation_split(short, encoder).measure(encoder, Aggregation())
    assert measured.keys() == {"relative_rank", "average_rank"}


def test_each_task_counts_by_its_share_of_chance(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.HEADS)
    split = make_validation_split(DIALOGUES, encoder)
    measured = split.measure(encoder, Aggregation())
    relative = measured.pop("relative_rank")
    shares = [rank / split.of_chance[name] for name, rank in measured.items()]
    assert len(shares) == 3
    assert relative == pytest.approx(sum(shares) / 3)


def test_of_several_files_the_means_come_first(
    tiny_encoder: Encoders, tiny_encoder_folder: Folder, tmp_path: Path
) -> None:
    paths = [str(tmp_path / f"{topic}.jsonl") for topic in ("shop", "home")]
    for path, words in zip(paths, ("bread tea", "rain lamp"), strict=True):
        write_dialogues(Path(path), [[f"{words} {n} {t}" for t in range(12)] for n in range(3)])
    config = EncoderConfig.model_validate(
        {
            "kind": "heads",
            "base": str(tiny_encoder_folder(EncoderKind.HEADS)),
            "data": [{"path": paths[0]}],
            "objectives": {"running_query": 1},
            "validation": {"paths": paths},
        }
    )
    measured = encoder_validator(config, Path, config.aggregation)(tiny_encoder(EncoderKind.HEADS))
    tasks = list(measured)[:4]
    assert len(measured) == 12
    for task in tasks:
        assert measured[task] == pytest.approx(fmean(measured[f"{path}/{task}"] for path in paths))
