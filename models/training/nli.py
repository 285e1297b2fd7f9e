"""Natural-language inference as a second objective, so that sentences keep their meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models.data import read_records
from turnwise.models.errors import DataError

LABELS = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True, slots=True)
class NliPair:
    """A premise, a hypothesis, and a place in `LABELS`."""

    premise: str
    hypothesis: str
    label: int


class NliHead(nn.Module):
    """Softmax over three classes of (u, v, |u - v|), as in Sentence-BERT.

    Texts come without a role. Both papers add NLI to their objective; the published code
    feeds its three labels to a loss for two classes.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * dimension, len(LABELS))

    def forward(self, premises: Tensor, hypotheses: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of (n, d) premises and hypotheses with (n,) labels."""
        features = torch.cat([premises, hypotheses, (premises - hypotheses).abs()], dim=-1)
        return functional.cross_entropy(self.linear(features), labels)


def read_nli(path: Path) -> Iterator[NliPair]:
    """Yield the pairs of a JSONL file of premise, hypothesis and label, at least one.

    Raises:
        DataError: There is no line, one lacks a field, or its label is none of the three.
    """
    record = None
    for record in read_records(path):
        label = record.text("label")
        if label not in LABELS:
            raise record.error("label", f"must be one of {', '.join(LABELS)}")
        yield NliPair(record.text("premise"), record.text("hypothesis"), LABELS.index(label))
    if record is None:
        raise DataError("no pair in it", str(path))
