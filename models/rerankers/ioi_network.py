"""The interaction-over-interaction network (Tao et al., ACL 2019), from words to scores.

An utterance and a response, each a matrix of word vectors, go through L interaction blocks. A
block lets each attend to itself and to the other, and hands the compressed outcome on; three
similarity matrices of the block become one matching vector. A GRU a block reads the matching
vectors of a context's utterances in their order and gives the block's score.

Nothing depends on how far a text is padded: its padding is masked in attention, and is zero in
the similarity matrices, which are zero up to the longest text that the network takes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from turnwise.models.rerankers.vocabulary import PADDING

Objective = Literal["local", "global"]

FILTERS = (32, 16)
"""Output channels of the two convolutions."""
WINDOW = 3
"""Side of convolutions and of pools, which do not overlap."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What fixes a network's shape.

    Attributes:
        vocabulary: Words, padding and unknown included.
        dimension: Length d of a word's vector and of all that is made from it.
        blocks: Interaction blocks L.
        words: Words of a text that count.
        turns: Utterances of a context that count, the newest.
        matrices: Which of the similarity matrices M1, M2, M3 a block looks at.
        dropout: Share of zeroed values in training.
        objective: Which of the two losses it learns, hence how blocks add up.
    """

    vocabulary: int
    dimension: int = 200
    blocks: int = 7
    words: int = 50
    turns: int = 10
    matrices: tuple[int, ...] = (1, 2, 3)
    dropout: float = 0.2
    objective: Objective = "local"


class Attention(nn.Module):
    """A query's words read a key's words.

    The weights are fully aware, `softmax(relu(QU) D relu(KU)ᵀ / √d)` with a diagonal D; then the
    residual, layer normalisation and a feed-forward part as in a Transformer.
    """

    def __init__(self, dimension: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Linear(dimension, dimension, bias=False)
        self.diagonal = nn.Parameter(torch.ones(dimension))
        self.read_norm, self.feed_norm = nn.LayerNorm(dimension), nn.LayerNorm(dimension)
        self.feed = nn.Sequential(
            nn.Linear(dimension, dimension), nn.ReLU(), nn.Linear(dimension, dimension)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, key_mask: Tensor) -> Tensor:
        """Return (P, n, d) for (P, n, d) queries, (P, m, d) keys and their (P, m) mask."""
        asked = functional.relu(self.project(query)) * self.diagonal
        offered = functional.relu(self.project(key))
        logits = asked @ offered.mT / math.sqrt(key.shape[-1])
        weights = logits.masked_fill(~key_mask[:, None], -math.inf).softmax(-1)
        read = self.read_norm(query + self.dropout(weights) @ key)
        fed: Tensor = self.feed_norm(read + self.feed(read))
        return fed


class Compression(nn.Module):
    """A block's outcome: residual, and a direct connection from the initial representation."""

    def __init__(self, dimension: int, dropout: float) -> None:
        super().__init__()
        self.compress = nn.Linear(4 * dimension, dimension)
        self.norm = nn.LayerNorm(dimension)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, given: Tensor, to_itself: Tensor, crossed: Tensor, initial: Tensor | None
    ) -> Tensor:
        """Return (P, n, d): `norm(given + relu(W [given; self; cross; given ⊙ cross]) + initial)`.

        `initial` is left out of the first block, to which it is given anyway.
        """
        features = torch.cat([given, to_itself, crossed, given * crossed], dim=-1)
        outcome = given + self.dropout(functional.relu(self.compress(features)))
        normed: Tensor = self.norm(outcome if initial is None else outcome + initial)
        return normed


class Matching(nn.Module):
    """Similarity matrices to a matching vector, by two convolutions with max pooling."""

    def __init__(self, matrices: int, words: int, dimension: int, dropout: float) -> None:
        """Make a network.

        Args:
            matrices: Number of similarity matrices.
            words: Words of the longest text, hence the side of a matrix.
            dimension: Length of the vector.
            dropout: Share of features that are zeroed in training.
        """
        super().__init__()
        first, second = FILTERS
        self.first = nn.Conv2d(matrices, first, WINDOW, padding="same")
        self.second = nn.Conv2d(first, second, WINDOW, padding="same")
        side = pooled(pooled(words))
        self.dense = nn.Linear(second * side * side, dimension)
        self.dropout = nn.Dropout(dropout)
        self.words = words

    def forward(self, matrices: Tensor) -> Tensor:
        """Return (P, d) for (P, M, n, m) matrices."""
        flat = self.dropout(self.features(matrices).flatten(1))
        return torch.tanh(self.dense(flat))

    def features(self, matrices: Tensor) -> Tensor:
        """Return what convolutions and pools make of matrices continued by zeros.

        Where the zeros are out of sight of a matrix, all look alike: they are worked out once
        for all pairs, and each pair's own corner is laid over them. A matrix of 12 by 12 words
        costs a sixth so.
        """
        seen = max(in_sight(side) for side in matrices.shape[-2:])
        corner = WINDOW**2 * seen + WINDOW
        if corner >= self.words:
            return self._convolve(continued(matrices, self.words))
        empty = matrices.new_zeros(1, matrices.shape[1], self.words, self.words)
        alike = self._convolve(empty).expand(len(matrices), -1, -1, -1).clone()
        own = self._convolve(continued(matrices, corner))[..., :seen, :seen]
        alike[..., :seen, :seen] = own
        return alike

    def _convolve(self, matrices: Tensor) -> Tensor:
        hidden = matrices.contiguous(memory_format=torch.channels_last)  # a quarter faster
        for convolution in (self.first, self.second):
            # Pooled first: the same, with a ninth of the values to rectify.
            hidden = functional.max_pool2d(convolution(hidden), WINDOW, ceil_mode=True).relu()
        return hidden


def pooled(side: int) -> int:
    """Return the side of a matrix after a pool that covers all of it."""
    return -(-side // WINDOW)


def in_sight(side: int) -> int:
    """Return how many of the last cells a text of so many words can have an influence on."""
    return (side // WINDOW + 1) // WINDOW + 1


def continued(matrices: Tensor, side: int) -> Tensor:
    """Continue matrices by zeros to a square, or cut off what is zero anyway."""
    height, width = matrices.shape[-2:]
    return functional.pad(matrices, (0, side - width, 0, side - height))


class Side(nn.Module):
    """What a block learns for one of the two texts."""

    def __init__(self, dimension: int, dropout: float, *, last: bool) -> None:
        super().__init__()
        self.to_itself = Attention(dimension, dropout)
        self.crossed = Attention(dimension, dropout)
        self.compression = None if last else Compression(dimension, dropout)


class Block(nn.Module):
    """One interaction block, with the scorer that reads its matching vectors."""

    def __init__(self, sizes: Sizes, *, last: bool) -> None:
        super().__init__()
        self.utterance = Side(sizes.dimension, sizes.dropout, last=last)
        self.response = Side(sizes.dimension, sizes.dropout, last=last)
        matrices = len(sizes.matrices)
        self.matching = Matching(matrices, sizes.words, sizes.dimension, sizes.dropout)
        self.reader = nn.GRU(sizes.dimension, sizes.dimension, batch_first=True)
        self.scorer = nn.Linear(sizes.dimension, 1)

    def score(self, matching: Tensor, turns: Tensor) -> Tensor:
        """Return (E,) logits of examples from the (P, d) vectors of their utterances in turn."""
        padded = pad_sequence(list(torch.split(matching, turns.tolist())), batch_first=True)
        packed = pack_padded_sequence(padded, turns, batch_first=True, enforce_sorted=False)
        logits: Tensor = self.scorer(self.reader(packed)[1][0])
        return logits.squeeze(-1)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of texts by their places, so that a text in many pairs is laid out once.

    Attributes:
        utterances: (U, n) int64 words, padded.
        responses: (R, m) int64 words, padded.
        utterance: (P,) int64 place of each pair's utterance.
        response: (P,) int64 place of its response.
    """

    utterances: Tensor
    responses: Tensor
    utterance: Tensor
    response: Tensor


class InteractionNetwork(nn.Module):
    """L blocks over word embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.dimension, PADDING)
        self.blocks = nn.ModuleList(
            Block(sizes, last=place == sizes.blocks) for place in range(1, sizes.blocks + 1)
        )
        self.dropout = nn.Dropout(sizes.dropout)

    def match(self, pairs: Pairs) -> Tensor:
        """Return (L, P, d) matching vectors of each pair in each block.

        What does not depend on the other text, the embeddings and the first block's
        self-attention, is worked out once a text.
        """
        of_pair = pairs.utterance, pairs.response
        texts = [self.dropout(self.embedding(ids)) for ids in (pairs.utterances, pairs.responses)]
        masks = [ids != PADDING for ids in (pairs.utterances, pairs.responses)]
        sides = [(block.utterance, block.response) for block in self._blocks()]
        selves = [
            s.to_itself(x, x, mask) for s, x, mask in zip(sides[0], texts, masks, strict=True)
        ]
        u0, r0 = (x[places] for x, places in zip(texts, of_pair, strict=True))
        u_self, r_self = (x[places] for x, places in zip(selves, of_pair, strict=True))
        u_mask, r_mask = (mask[places] for mask, places in zip(masks, of_pair, strict=True))
        cells = u_mask[:, :, None] & r_mask[:, None]
        u, r, vectors = u0, r0, []
        for place, block in enumerate(self._blocks()):
            if place:
                u_self = block.utterance.to_itself(u, u, u_mask)
                r_self = block.response.to_itself(r, r, r_mask)
            u_cross = block.utterance.crossed(u, r, r_mask)
            r_cross = block.response.crossed(r, u, u_mask)
            both = {1: (u, r), 2: (u_self, r_self), 3: (u_cross, r_cross)}
            matrices = [similarity(*both[number]) for number in self.sizes.matrices]
            vectors.append(block.matching(torch.stack(matrices, dim=1) * cells[:, None]))
            if block.utterance.compression and block.response.compression:
                initial = (u0, r0) if place else (None, None)
                u = block.utterance.compression(u, u_self, u_cross, initial[0])
                r = block.response.compression(r, r_self, r_cross, initial[1])
        return torch.stack(vectors)

    def score(self, matching: Tensor, turns: Tensor) -> Tensor:
        """Return (E, L) logits of examples, one a block.

        Args:
            matching: (L, P, d) vectors, the pairs of an example in the order of its utterances.
            turns: (E,) int64 utterances of each example, on the CPU.
        """
        of_block = zip(self._blocks(), matching, strict=True)
        return torch.stack([block.score(vectors, turns) for block, vectors in of_block], dim=-1)

    def _blocks(self) -> Sequence[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]


def similarity(utterance: Tensor, response: Tensor) -> Tensor:
    """Return (P, n, m) products of words, scaled by √d."""
    return utterance @ response.mT / math.sqrt(utterance.shape[-1])


def final_score(logits: Tensor, objective: Objective) -> Tensor:
    """Add up the blocks: (E,) scores of (E, L) logits.

    With the local loss each block's score is a probability, and the final one is their sum (eq.
    16); with the global loss the blocks' logits add up to that of one probability.
    """
    return logits.sigmoid().sum(-1) if objective == "local" else logits.sum(-1)


def matching_loss(logits: Tensor, labels: Tensor, objective: Objective) -> Tensor:
    """Return the cross-entropy of labels, the mean over examples.

    - `global` (eq. 17): of the final score alone.
    - `local` (eq. 18): of every block's score, summed over the blocks.

    Args:
        logits: (E, L), one a block.
        labels: (E,) float32, 1 for the true response.
        objective: Which of the two.
    """
    if objective == "global":
        return functional.binary_cross_entropy_with_logits(logits.sum(-1), labels)
    of_block = functional.binary_cross_entropy_with_logits(
        logits, labels[:, None].expand_as(logits), reduction="none"
    )
    return of_block.sum(-1).mean()
