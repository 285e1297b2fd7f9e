"""`turnwise evaluate pairs`."""

from pathlib import Path

from turnwise.models.evaluation.minimal_pairs import evaluate_minimal_pairs, read_minimal_pairs
from turnwise.models.texts import write_count
from turnwise.service.cli.models.evaluate.loading import load_with_cross_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.progress import SystemProgress


def measure(
    data: list[Path],
    cross_encoders: list[str],
    compared: Compared,
    *,
    out: Path | None,
    limit: int | None,
) -> None:
    """Choose between the two replies of minimal pairs."""
    pairs = read_minimal_pairs(data, limit)
    models = load_with_cross_encoders(compared, cross_encoders)
    with SystemProgress() as progress:
        rows = list(evaluate_minimal_pairs(models, pairs, progress))
    report("pairs", data, rows, out, f"{write_count(len(pairs), 'pair')}; chance is a quarter.")
