"""Measures how much the vectors of an encoder reveal about the order of goals, with any scorer.

    python research/goal_order.py --train train.jsonl.xz --validation validation.jsonl.xz

Long-term planning scores an order of goals by the cosines of its links. Here two scorers learn
only the order, over the same frozen vectors: which of two utterances of a dialogue, an even number
of utterances apart, comes first. If they order the goals of the validation split no better than the
chain does, another score cannot help, and the vectors must change.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float64
from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.long_term import (
    GOALS,
    ORDERS,
    GoalSet,
    make_goal_sets,
    order_metrics,
)
from turnwise.models.evaluation.split import VectorTable
from turnwise.models.planning import chain_score
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs
from turnwise.models.training.config import CorpusSource
from turnwise.models.training.corpora import read_source

EPOCHS = 3
BATCH = 512
FURTHEST = 4

Links = Callable[[Tensor], Float64]
"""A function from the vectors (3, 2 d) of three goals to (3, 3): how well goal j follows goal i."""


class Bilinear(nn.Module):
    """Scores pairs (..., width) by the cosine of a projection of each side."""

    def __init__(self, width: int, hidden: int = 128) -> None:
        super().__init__()
        self.sides = nn.ModuleList(
            nn.Sequential(nn.Dropout(0.2), nn.Linear(width, hidden)) for _ in range(2)
        )
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, earlier: Tensor, later: Tensor) -> Tensor:
        one, other = (side(x) for side, x in zip(self.sides, (earlier, later), strict=True))
        return self.scale * functional.cosine_similarity(one, other, dim=-1)


class Perceptron(nn.Module):
    """Scores pairs (..., width) by a hidden layer over both sides and their product."""

    def __init__(self, width: int, hidden: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(0.2),
            nn.Linear(3 * width, hidden),
            nn.GELU(),
            nn.Dropout(0.3),
            nn.Linear(hidden, 1),
        )

    def forward(self, earlier: Tensor, later: Tensor) -> Tensor:
        scores: Tensor = self.layers(torch.cat([earlier, later, earlier * later], dim=-1))
        return scores[..., 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--leave-out")
    parser.add_argument("--validation", type=Path, required=True)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument(
        "--dialogues", type=int, default=2500, help="dialogues of the training split"
    )
    options = parser.parse_args()

    torch.manual_seed(0)
    corpus = CorpusSource(path=options.train, leave_out=options.leave_out)
    long = (d for d in read_source(corpus, Path) if len(d.utterances) > FURTHEST)
    train = list(islice(long, options.dialogues))
    goal_sets = make_goal_sets(read_dialogues(options.validation))
    said = [u.text for d in train for u in d.utterances]
    said += [g.text for s in goal_sets for g in s.goals]
    encoder = UtteranceEncoder(options.model)
    table = VectorTable(encoder, candidate_inputs(said) + before_keys(said))
    earlier, later = pairs(train, table)
    print(f"{len(earlier):,} pairs of {len(train):,} dialogues; {len(goal_sets):,} sets of goals")

    def chain(goals: Tensor) -> Float64:
        after, before = goals.split(encoder.dimension, dim=1)
        links: Float64 = (before @ after.T).double().numpy()
        return links

    report("chain", chain, goal_sets, table)
    for scorer in (Bilinear(2 * encoder.dimension), Perceptron(2 * encoder.dimension)):
        learn(scorer, earlier, later)
        report(type(scorer).__name__.lower(), as_links(scorer), goal_sets, table)


def before_keys(texts: Iterable[str]) -> list[RoleText]:
    """Return utterances as the encoder reads them before a later one of the same speaker."""
    return [RoleText(text, Role.SECOND, Relation.SAME) for text in texts]


def vectors(texts: Sequence[str], table: VectorTable) -> Tensor:
    """Return the vectors (n, 2 d) of texts: as candidates, then as context."""
    both = [table[candidate_inputs(texts)], table[before_keys(texts)]]
    return torch.from_numpy(np.concatenate(both, axis=1))


def pairs(dialogues: Sequence[Dialogue], table: VectorTable) -> tuple[Tensor, Tensor]:
    """Return the vectors of the earlier and of the later utterance of each pair, (n, 2 d) each."""
    found = [
        (one.text, other.text)
        for dialogue in dialogues
        for (i, one), (j, other) in combinations(enumerate(dialogue.utterances), 2)
        if (j - i) % 2 == 0 and j - i <= FURTHEST
    ]
    earlier, later = zip(*found, strict=True)
    return vectors(earlier, table), vectors(later, table)


def learn(scorer: nn.Module, earlier: Tensor, later: Tensor) -> None:
    """Learn that the right order scores above the other, by a logistic loss."""
    optimiser = torch.optim.AdamW(scorer.parameters(), 1e-3)
    scorer.train()
    for _ in range(EPOCHS):
        for indices in torch.randperm(len(earlier)).split(BATCH):
            one = earlier[indices]
            other = later[indices]
            loss = functional.softplus(scorer(other, one) - scorer(one, other)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    scorer.eval()


def as_links(scorer: nn.Module) -> Links:
    """Return a function from three goals to the scores of a scorer for their links."""

    @torch.inference_mode()
    def links(goals: Tensor) -> Float64:
        shape = (len(goals), len(goals), -1)
        scores: Tensor = scorer(goals[:, None].expand(shape), goals[None].expand(shape))
        return scores.double().numpy()

    return links


def report(name: str, links: Links, goal_sets: Sequence[GoalSet], table: VectorTable) -> None:
    """Print how often two goals are put in their order, and how well all three are."""
    linked = np.stack([links(vectors([g.text for g in s.goals], table)) for s in goal_sets])
    orders = np.array([[chain_score(o, each) for o in ORDERS] for each in linked], np.float32)
    right = np.mean([linked[:, i, j] > linked[:, j, i] for i, j in combinations(range(GOALS), 2)])
    found = order_metrics(orders)
    print(
        f"{name:<12} pairs {right:.3f}   average rank of 6 {found['average_rank']:.2f}   "
        f"Hits@1 {found['hits@1']:.3f}"
    )


if __name__ == "__main__":
    main()
