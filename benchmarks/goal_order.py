"""How much of the order of goals an encoder's vectors tell, whatever the score.

    python benchmarks/goal_order.py --train train.jsonl.xz --validation validation.jsonl.xz

Long-term planning scores an order of goals by the cosines of its links. Here two scorers learn
nothing else than order, over the same frozen vectors: which of two utterances of a dialogue, an
even number of turns apart, comes first. What they reach on the validation split's goals beside the
chain says whether another score, or other vectors, would be needed.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models import DEFAULT_MODEL
from models.dialogue import Dialogue, read_dialogues
from models.encoder import UtteranceEncoder
from models.evaluation.goals import GOALS, GoalSet, make_goal_sets
from models.evaluation.long_term import ORDERS, order_metrics
from models.planning import chain_score
from models.roles import Relation, Role
from models.training.corpora import read_left_out

EPOCHS, BATCH, FURTHEST = 3, 512, 4

Links = Callable[[Tensor], NDArray[np.float64]]
"""From the vectors of three goals to (3, 3): how well each follows each."""


class Vectors:
    """What an encoder tells of texts: `[AFTER]` beside `[B2]` of the same speaker, (n, 2 d)."""

    def __init__(self, encoder: UtteranceEncoder, texts: Iterable[str]) -> None:
        distinct = list(dict.fromkeys(texts))
        self._place = {text: place for place, text in enumerate(distinct)}
        after = encoder.encode(distinct, Role.AFTER)
        before = encoder.encode(distinct, Role.SECOND, Relation.SAME)
        self.width = encoder.dimension
        self._all = torch.from_numpy(np.concatenate([after, before], axis=1))

    def __getitem__(self, texts: Iterable[str]) -> Tensor:
        return self._all[[self._place[text] for text in texts]]


class Bilinear(nn.Module):
    """A cosine after a projection of either side."""

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
    """A hidden layer over both and their product."""

    def __init__(self, width: int, hidden: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(0.2), nn.Linear(3 * width, hidden), nn.GELU(), nn.Dropout(0.3),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, earlier: Tensor, later: Tensor) -> Tensor:
        return self.layers(torch.cat([earlier, later, earlier * later], dim=-1))[..., 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--leave-out", type=Path)
    parser.add_argument("--validation", type=Path, required=True)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--dialogues", type=int, default=2500, help="of the training split")
    options = parser.parse_args()

    torch.manual_seed(0)
    left_out = read_left_out(options.leave_out) if options.leave_out else set()
    kept = (d for d in read_dialogues(options.train) if d.id not in left_out)
    train = list(islice((d for d in kept if len(d.utterances) > FURTHEST), options.dialogues))
    goal_sets = make_goal_sets(read_dialogues(options.validation))
    said = [u.text for d in train for u in d.utterances]
    vectors = Vectors(
        UtteranceEncoder(options.model), said + [g.text for s in goal_sets for g in s.goals]
    )
    earlier, later = pairs(train, vectors)
    print(f"{len(earlier):,} pairs of {len(train):,} dialogues; {len(goal_sets):,} sets of goals")

    def chain(goals: Tensor) -> NDArray[np.float64]:
        after, before = goals.split(vectors.width, dim=1)
        return (before @ after.T).double().numpy()

    report("chain", chain, goal_sets, vectors)
    for scorer in (Bilinear(2 * vectors.width), Perceptron(2 * vectors.width)):
        learn(scorer, earlier, later)
        report(type(scorer).__name__.lower(), learnt(scorer), goal_sets, vectors)


def pairs(dialogues: Sequence[Dialogue], vectors: Vectors) -> tuple[Tensor, Tensor]:
    """Return what came earlier and later, (n, 2 d) each."""
    found = [
        (one.text, other.text)
        for dialogue in dialogues
        for (i, one), (j, other) in combinations(enumerate(dialogue.utterances), 2)
        if (j - i) % 2 == 0 and j - i <= FURTHEST
    ]
    return vectors[(one for one, _ in found)], vectors[(other for _, other in found)]


def learn(scorer: nn.Module, earlier: Tensor, later: Tensor) -> None:
    """Learn that the right order scores above the other, by a logistic loss."""
    optimiser = torch.optim.AdamW(scorer.parameters(), 1e-3)
    scorer.train()
    for _ in range(EPOCHS):
        for places in torch.randperm(len(earlier)).split(BATCH):
            one, other = earlier[places], later[places]
            loss = functional.softplus(scorer(other, one) - scorer(one, other)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    scorer.eval()


def learnt(scorer: nn.Module) -> Links:
    """Return a scorer's links."""

    @torch.inference_mode()
    def links(goals: Tensor) -> NDArray[np.float64]:
        shape = (len(goals), len(goals), -1)
        scores: Tensor = scorer(goals[:, None].expand(shape), goals[None].expand(shape))
        return scores.double().numpy()

    return links


def report(name: str, links: Links, goal_sets: Sequence[GoalSet], vectors: Vectors) -> None:
    """Print how often two goals are put in their order, and how well all three are."""
    linked = np.stack([links(vectors[(g.text for g in s.goals)]) for s in goal_sets])
    orders = np.array([[chain_score(o, each) for o in ORDERS] for each in linked], np.float32)
    right = np.mean([linked[:, i, j] > linked[:, j, i] for i, j in combinations(range(GOALS), 2)])
    found = order_metrics(orders)
    print(
        f"{name:<12} pairs {right:.3f}   average rank of 6 {found['average_rank']:.2f}   "
        f"Hits@1 {found['hits@1']:.3f}"
    )


if __name__ == "__main__":
    main()
