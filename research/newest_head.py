"""Tries a head for the newest utterance, which the shipped encoder uses as it reads it.

    python research/newest_head.py --data CORPORA [--first-learns] [--keep-base 0 0.5]

The encoder stays as it is, so each text is read once and kept in `--cache`. The new head starts as
the identity. It changes [B2] of the newest utterance, and so the running query, but no candidate.
It learns from minimal pairs and from the next utterance of dialogues, and stays near the running
query without it. With `--first-learns` the heads of [B1] learn, too. `--keep-base` averages the
heads with those before.

Prints the average rank and R@1 of the next utterance on validation dialogues (contexts of 2 to 10
utterances, among the targets of contexts of equal length), as differences from the shipped model
with their standard errors over dialogues; and how many minimal pairs have both replies right.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.head_arrays import HEADS
from turnwise.models.encoder.heads import RoleHeads
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.metrics import ranks
from turnwise.models.evaluation.minimal_pairs import MinimalPair, read_minimal_pairs
from turnwise.models.evaluation.split import next_speaker
from turnwise.models.roles import Relation, Role
from turnwise.models.training.corpora import OWN_CORPORA, finder
from turnwise.models.training.losses import contrastive_loss

TRAINING = {
    "everyday/train": (0, 1500),
    "everyday/plain": (0, 1200),
    "self_dialogue/train": (0, 500),
    "topical_chat/validation": (300, 250),
    "synthetic_persona_chat/validation": (300, 150),
    "redial_part/train": (0, 250),
    "casino/train": (0, 100),
    "sgd/train": (0, 350),
    "star/train": (0, 250),
    "multiwoz_part/train": (0, 350),
    "taskmaster4/train": (0, 200),
    "woz2_en/train": (0, 150),
    "camrest676/train": (0, 100),
    "ubuntu_irc/train": (0, 200),
}
"""Dialogues of each corpus: how many are skipped, and how many are read."""
VALIDATION = {
    "dailydialog_detok/validation": 500,
    "sgd/validation": 120,
    "multiwoz_part/validation": 120,
    "woz2_en/validation": 120,
    "synthetic_persona_chat/validation": 100,
    "topical_chat/validation": 100,
    "camrest676/validation": 100,
}
"""Dialogues that measure the head."""
SHORTEST = 2
LONGEST = 10
"""Utterances of the contexts that are measured. Training takes the last eight of them."""
TRAINED_LENGTH = 8
HIDDEN = 768
CONTEXTS = 256
PAIRS = 96
"""Contexts and minimal pairs of a step."""
SCALE = 20.0
"""Inverse temperature of all scores."""

T = TypeVar("T")
Ranks = NDArray[np.float64]


class Weights(NamedTuple):
    """The weights of the losses; that of minimal pairs is 1."""

    next: float
    distil: float


class Vectors(NamedTuple):
    """The vectors of all texts, and the heads of the model."""

    said: Float32
    after: Float32
    heads: RoleHeads


class Turn(NamedTuple):
    """An utterance of a context: whether the responder says it, and its index as it is read."""

    own: bool
    read: int


class Example(NamedTuple):
    """A context, the index of what follows it as [AFTER], and the number of its dialogue."""

    context: list[Turn]
    target: int
    dialogue: int


@dataclass(slots=True)
class Texts:
    """Distinct texts, to be read once in a role."""

    index_of: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> int:
        return self.index_of.setdefault(text, len(self.index_of))


@dataclass(slots=True)
class Data:
    """All texts, and the examples and pairs that refer to them."""

    said: Texts = field(default_factory=Texts)
    after: Texts = field(default_factory=Texts)

    def examples(self, said: Sequence[Utterance], number: int, longest: int) -> Iterator[Example]:
        """Yield the contexts of a dialogue whose newest utterance is another speaker's."""
        for length in range(1, min(len(said), LONGEST + 1)):
            target = said[length]
            if said[length - 1].speaker != target.speaker:
                context = self.context(said[max(0, length - longest) : length], target.speaker)
                yield Example(context, self.after.add(target.text), number)

    def context(self, said: Iterable[Utterance], responder: str) -> list[Turn]:
        return [Turn(each.speaker == responder, self.said.add(each.text)) for each in said]

    def pair(self, pair: MinimalPair) -> list[Example]:
        return [
            Example(self.context(context, next_speaker(context)), self.after.add(reply), 0)
            for context, reply in zip(pair.contexts, pair.replies, strict=True)
        ]


class Head(nn.Module):
    """A head over vectors of length d, normalize(W v + V gelu(U v))."""

    def __init__(self, linear: Tensor, up: Tensor, down: Tensor) -> None:
        super().__init__()
        self.linear = nn.Parameter(linear.clone())
        self.up = nn.Parameter(up.clone())
        self.down = nn.Parameter(down.clone())

    def forward(self, vectors: Tensor) -> Tensor:
        hidden = functional.gelu(vectors @ self.up, approximate="tanh")
        return functional.normalize(vectors @ self.linear + hidden @ self.down, dim=-1)


class ContextHeads(nn.Module):
    """The heads of a context, and the vectors of all texts.

    Attributes:
        newest: The new head, of the newest utterance. It starts as the identity.
        first: The head of [B1] of an earlier utterance, by whether the responder said it.
        said: (n, d) the texts of contexts, as the encoder reads them.
        after: (m, d) the targets.
    """

    def __init__(self, vectors: Vectors, *, first_learns: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        d = vectors.said.shape[1]
        up = torch.randn(d, HIDDEN) / d**0.5
        self.newest = Head(torch.eye(d), up, torch.zeros(HIDDEN, d))
        kept = vectors.heads.eval()
        indices = [
            HEADS.index((Role.FIRST, relation)) for relation in (Relation.OTHER, Relation.SAME)
        ]
        self.first = nn.ModuleList(
            Head(kept.linear.data[index], kept.up.data[index], kept.down.data[index])
            for index in indices
        )
        self.first.requires_grad_(first_learns)
        self.said = torch.from_numpy(vectors.said)
        self.after = torch.from_numpy(vectors.after)

    def distance(self, former: "ContextHeads") -> Tensor:
        """Return the squared distance of the weights from former ones."""
        pairs = zip(self.parameters(), former.parameters(), strict=True)
        return torch.stack([(ours - theirs).square().sum() for ours, theirs in pairs]).sum()

    def average(self, former: "ContextHeads", keep: float) -> "ContextHeads":
        """Return the heads averaged with former ones, which have the share `keep`."""
        averaged = deepcopy(self)
        for ours, theirs in zip(averaged.parameters(), former.parameters(), strict=True):
            ours.data.lerp_(theirs.data, keep)
        return averaged

    def queries(self, contexts: Sequence[list[Turn]]) -> Tensor:
        """Return the running queries (n, d), last row."""
        second = self.newest(self.said[torch.tensor([context[-1].read for context in contexts])])
        earlier = max(1, *(len(context) - 1 for context in contexts))
        own = torch.zeros(len(contexts), earlier, dtype=torch.bool)
        read = torch.zeros(len(contexts), earlier, dtype=torch.int64)
        spoken = torch.zeros(len(contexts), earlier, dtype=torch.bool)
        for row, context in enumerate(contexts):
            for column, turn in enumerate(context[:-1]):
                own[row, column] = turn.own
                read[row, column] = turn.read
                spoken[row, column] = True
        of_other, of_same = (head(self.said[read]) for head in self.first)
        first = torch.where(own[..., None], of_same, of_other)
        mixtures = functional.normalize(first + second[:, None], dim=-1) * spoken[..., None]
        rows = torch.where(spoken.any(1)[:, None], mixtures.sum(1), second)
        return functional.normalize(rows, dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--pairs", type=Path, nargs="+", default=[], help="more pairs to train on")
    parser.add_argument("--measured-pairs", type=Path, nargs="+", default=[])
    parser.add_argument("--cache", type=Path, default=Path("build/newest-head.npz"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--next", type=float, default=2.0, help="weight of the next utterance")
    parser.add_argument("--distil", type=float, default=10.0)
    parser.add_argument("--first-learns", action="store_true")
    parser.add_argument("--keep-base", type=float, nargs="+", default=[0.0, 0.3, 0.5])
    options = parser.parse_args()

    data = Data()
    own = OWN_CORPORA / "pairs"
    trained = [
        [data.pair(pair) for pair in read_minimal_pairs([file])]
        for file in (own / "train.jsonl.xz", *options.pairs)
    ]
    measured = {
        str(file): [data.pair(pair) for pair in read_minimal_pairs([file])]
        for file in (own / "validation.jsonl.xz", *options.measured_pairs)
    }
    find = finder([options.data])
    corpora = [
        list(read(data, find(f"{name}.jsonl.xz"), slice(skip, skip + count), TRAINED_LENGTH))
        for name, (skip, count) in TRAINING.items()
    ]
    validation = {
        name: [
            example
            for example in read(data, find(f"{name}.jsonl.xz"), slice(0, count), LONGEST)
            if len(example.context) >= SHORTEST
        ]
        for name, count in VALIDATION.items()
    }
    heads = ContextHeads(read_vectors(data, options.cache), first_learns=options.first_learns)
    former = deepcopy(heads).requires_grad_(requires_grad=False)
    before = {name: rank(former, examples) for name, examples in validation.items()}
    weights = Weights(options.next, options.distil)
    train(heads, former, corpora, trained, weights, steps=options.steps)
    for keep in options.keep_base:
        averaged = heads.average(former, keep)
        print(f"keep_base {keep}")
        for name, examples in validation.items():
            print_differences(name, examples, before[name], rank(averaged, examples))
        for file, pairs in measured.items():
            shares = [share_right(each, pairs) for each in (former, averaged)]
            print(f"  {file}: both right {shares[0]:.3f} to {shares[1]:.3f}", flush=True)


def read(data: Data, file: Path, dialogues: slice, longest: int) -> Iterator[Example]:
    """Yield the examples of some dialogues of a file, with contexts of at most `longest`."""
    chosen = islice(read_dialogues(file), dialogues.start, dialogues.stop)
    for number, dialogue in enumerate(chosen):
        yield from data.examples(dialogue.utterances, number, longest)


def read_vectors(data: Data, cache: Path) -> Vectors:
    """Return the vectors (n, d) of all texts of contexts and (m, d) of all targets, and the heads.

    A cache of other texts has another number of them, and is written again.
    """
    encoder = UtteranceEncoder(DEFAULT_MODEL)
    assert encoder.heads is not None
    sizes = [len(data.said.index_of), len(data.after.index_of)]
    if cache.is_file():
        kept = np.load(cache)
        if [len(kept["said"]), len(kept["after"])] == sizes:
            return Vectors(kept["said"], kept["after"], encoder.heads)
    said = encoder.encode(list(data.said.index_of), Role.SAID)
    after = encoder.encode(list(data.after.index_of), Role.AFTER)
    cache.parent.mkdir(parents=True, exist_ok=True)
    np.savez(cache, said=said, after=after)
    return Vectors(said, after, encoder.heads)


def train(
    heads: ContextHeads,
    former: ContextHeads,
    corpora: Sequence[list[Example]],
    pairs: Sequence[list[list[Example]]],
    weights: Weights,
    *,
    steps: int,
) -> None:
    """Train the heads.

    A step has `CONTEXTS` contexts, of large corpora more, and `PAIRS` pairs, of each file alike.
    """
    rng = np.random.default_rng(0)
    shares = np.array([len(examples) for examples in corpora]) ** 0.7
    shares /= shares.sum()
    learning = [weight for weight in heads.parameters() if weight.requires_grad]
    optimiser = torch.optim.Adam(learning, lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / 50) * (1 - step / steps)
    )
    for step in range(1, steps + 1):
        drawn = rng.choice(len(corpora), size=CONTEXTS, p=shares).tolist()
        examples = [draw(corpora[corpus], rng) for corpus in drawn]
        files = rng.integers(len(pairs), size=PAIRS).tolist()
        queries = heads.queries([example.context for example in examples])
        parts = {
            "next": weights.next * next_loss(heads, examples, queries),
            "distil": weights.distil * distance_from_former(former, examples, queries),
            "pairs": pairs_loss(heads, [draw(pairs[file], rng) for file in files]),
            "moved": 5e-4 * heads.distance(former),
        }
        optimiser.zero_grad()
        torch.stack(list(parts.values())).sum().backward()
        optimiser.step()
        schedule.step()
        if step % 250 == 0:
            said = ", ".join(f"{name} {part.item():.3f}" for name, part in parts.items())
            print(f"step {step}: {said}", flush=True)


def draw(items: Sequence[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


def next_loss(heads: ContextHeads, examples: Sequence[Example], queries: Tensor) -> Tensor:
    """Return InfoNCE of contexts, by their queries (n, d), and their targets."""
    targets = torch.tensor([example.target for example in examples])
    logits = SCALE * queries @ heads.after[targets].T
    return contrastive_loss(logits, targets[:, None] == targets)


def distance_from_former(
    former: ContextHeads, examples: Sequence[Example], queries: Tensor
) -> Tensor:
    """Return how far queries (n, d), and the scores of targets, are from the former ones."""
    targets = former.after[torch.tensor([example.target for example in examples])]
    with torch.no_grad():
        wanted_queries = former.queries([example.context for example in examples])
    scores = (SCALE * queries @ targets.T).log_softmax(1)
    wanted = (SCALE * wanted_queries @ targets.T).log_softmax(1)
    divergence = functional.kl_div(scores, wanted, log_target=True, reduction="batchmean")
    return divergence + (1 - (queries * wanted_queries).sum(1)).mean()


def pairs_loss(heads: ContextHeads, pairs: Sequence[list[Example]]) -> Tensor:
    """Return the loss of minimal pairs, as `losses.minimal_pairs_loss`."""
    sides = [side for pair in pairs for side in pair]
    replies = heads.after[torch.tensor([side.target for side in sides])]
    logits = SCALE * heads.queries([side.context for side in sides]) @ replies.T
    own = torch.arange(len(sides))
    other = own.view(-1, 2).flip(1).flatten()
    behind = logits[own, other] - logits[own, own]
    return functional.softplus(1 + behind).mean() + functional.cross_entropy(logits, own) / 4


@torch.no_grad()
def rank(heads: ContextHeads, examples: Sequence[Example]) -> Ranks:
    """Return the rank (n,) of each target among those of contexts of equal length."""
    lengths = np.array([len(example.context) for example in examples])
    of_true = np.empty(len(examples))
    for length in np.unique(lengths):
        indices = np.flatnonzero(lengths == length)
        among = [examples[index] for index in indices.tolist()]
        queries = heads.queries([example.context for example in among])
        scores = queries @ heads.after[torch.tensor([example.target for example in among])].T
        of_true[indices] = ranks(scores.numpy(), np.arange(len(among))).expected
    return of_true


@torch.no_grad()
def share_right(heads: ContextHeads, pairs: Sequence[list[Example]]) -> float:
    """Return the share of pairs in which each context has the higher score for its own reply."""
    sides = [side for pair in pairs for side in pair]
    queries = heads.queries([side.context for side in sides])
    replies = heads.after[torch.tensor([side.target for side in sides])]
    own = (queries * replies).sum(1)
    other = (queries * replies.view(-1, 2, replies.shape[1]).flip(1).flatten(0, 1)).sum(1)
    return float((own > other).view(-1, 2).all(1).float().mean())


def print_differences(name: str, examples: Sequence[Example], before: Ranks, after: Ranks) -> None:
    """Print the changes of the average rank and of R@1, with errors over dialogues."""
    dialogues = np.array([example.dialogue for example in examples])
    said = [f"  {name:34}"]
    for label, former, change in (
        ("rank", before.mean(), after - before),
        ("R@1", 100 * (before <= 1).mean(), 100.0 * ((after <= 1) * 1.0 - (before <= 1))),
    ):
        apart = change - change.mean()
        sums = np.array([apart[dialogues == number].sum() for number in np.unique(dialogues)])
        error = (sums**2).sum() ** 0.5 / len(change)
        said.append(f"{label} {former:.2f} {change.mean():+.2f} ± {error:.2f}")
    print("  ".join(said))


if __name__ == "__main__":
    main()
