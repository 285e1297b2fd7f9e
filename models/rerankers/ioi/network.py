"""The interaction-over-interaction network (Tao et al., ACL 2019): word ids to logits and losses.

An utterance and a response, each a matrix of word vectors, go through L interaction blocks. In a
block each text attends to itself and to the other, and the compressed outcome goes to the next
block; three similarity matrices of the block become one matching vector. Each block has a GRU that
reads the matching vectors of a context's utterances in order and gives the block's logit.

It is the network of the released code, which differs from the print in six places
(docs/papers.md).

A score does not depend on padding: attention masks it, and similarity matrices are zero there, as
they are up to the longest text that the network takes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from turnwise.models.rerankers.ioi.vocabulary import PADDING

Objective = Literal["local", "global"]
Representation = Literal["given", "self", "cross", "product"]
"""A text in a block: as given, after self- and after cross-attention, and given times cross."""

FILTERS = (32, 16)
"""Output channels of the two convolutions."""
WINDOW = 3
"""Side of convolutions and of pools, which do not overlap."""


class Shape(BaseModel):
    """The sizes of a network that a recipe chooses; the defaults are the published ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    dimension: PositiveInt = 200
    """Length d of word vectors and of all that the network makes from them."""
    blocks: PositiveInt = 7
    """Interaction blocks L."""
    words: int = Field(default=50, ge=3)
    """First words of a text that count."""
    turns: PositiveInt = 10
    """Last utterances of a context that count."""
    matrices: tuple[Literal[1, 2, 3], ...] = Field(default=(1, 2, 3), min_length=1)
    """Similarity matrices of a block: of the given, the self-attended, the crossed texts."""
    compressed: tuple[Representation, ...] = Field(
        default=("given", "self", "cross", "product"), min_length=1
    )
    """Representations of a text that a block compresses for the next one (eq. 10)."""
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Share of values that training sets to zero."""
    objective: Objective = "local"
    """The loss, and with it how the blocks' logits add up to a score."""


class Sizes(Shape):
    """All that fixes the shape of a network's weights."""

    vocabulary: PositiveInt
    """Words, with the ids of padding and of unknown words."""


class Attention(nn.Module):
    """Lets the words of a query attend to the words of a key.

    The weights are fully aware, `softmax(relu(QU) D relu(KU)ᵀ / √d)` with a diagonal D; then
    follow the residual, layer normalisation and a feed-forward part, as in a Transformer.
    """

    def __init__(self, dimension: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Linear(dimension, dimension, bias=False)
        self.diagonal = nn.Parameter(torch.ones(dimension))
        self.read_norm = nn.LayerNorm(dimension)
        self.feed_norm = nn.LayerNorm(dimension)
        self.feed = nn.Sequential(
            nn.Linear(dimension, dimension), nn.ReLU(), nn.Linear(dimension, dimension)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, key_mask: Tensor) -> Tensor:
        """Return (P, n, d) for (P, n, d) queries, (P, m, d) keys and their (P, m) bool mask."""
        asked = functional.relu(self.project(query)) * self.diagonal
        offered = functional.relu(self.project(key))
        logits = asked @ offered.mT / math.sqrt(key.shape[-1])
        weights = logits.masked_fill(~key_mask[:, None], -math.inf).softmax(-1)
        read = self.read_norm(query + self.dropout(weights) @ key)
        fed: Tensor = self.feed_norm(read + self.feed(read))
        return fed


class Compression(nn.Module):
    """Compresses a block's outcome, with a residual and a direct connection from the embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.compressed = sizes.compressed
        self.compress = nn.Linear(len(sizes.compressed) * sizes.dimension, sizes.dimension)
        self.norm = nn.LayerNorm(sizes.dimension)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(
        self, given: Tensor, to_itself: Tensor, crossed: Tensor, initial: Tensor | None
    ) -> Tensor:
        """Return (P, n, d): `norm(given + relu(W [given; self; cross; given ⊙ cross]) + initial)`.

        `initial` is the first block's `given`; in that block it is None. W reads only the
        representations that the sizes name.
        """
        all_four = {
            "given": given,
            "self": to_itself,
            "cross": crossed,
            "product": given * crossed,
        }
        features = torch.cat([all_four[name] for name in self.compressed], dim=-1)
        outcome = given + self.dropout(functional.relu(self.compress(features)))
        normed: Tensor = self.norm(outcome if initial is None else outcome + initial)
        return normed


class Matching(nn.Module):
    """Turns similarity matrices into a matching vector by two convolutions with max pooling.

    Args:
        matrices: Number M of similarity matrices.
        words: Words of the longest text, which is the side of a matrix.
        dimension: Length d of the vector.
        dropout: Share of features that training sets to zero.
    """

    def __init__(self, matrices: int, words: int, dimension: int, dropout: float) -> None:
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
        """Return the convolved and pooled (P, channels, side, side) of zero-padded matrices.

        Cells that only see the padding are the same for all pairs: they are computed once, and
        each pair's own corner is laid over them. This makes a matrix of 12 by 12 words six times
        cheaper.
        """
        seen = max(count_visible(side) for side in matrices.shape[-2:])
        corner = WINDOW**2 * seen + WINDOW
        if corner >= self.words:
            return self.convolve(zero_padded(matrices, self.words))
        empty = matrices.new_zeros(1, matrices.shape[1], self.words, self.words)
        features = self.convolve(empty).expand(len(matrices), -1, -1, -1).clone()
        own = self.convolve(zero_padded(matrices, corner))[..., :seen, :seen]
        features[..., :seen, :seen] = own
        return features

    def convolve(self, matrices: Tensor) -> Tensor:
        """Return the features (B, F, S, S) of whole matrices (B, M, W, W), S = W pooled twice."""
        hidden = matrices.contiguous(memory_format=torch.channels_last)  # a quarter faster
        for convolution in (self.first, self.second):
            # Pooling first gives the same, with a ninth of the values to rectify.
            hidden = functional.max_pool2d(convolution(hidden), WINDOW, ceil_mode=True).relu()
        return hidden


def pooled(side: int) -> int:
    """Return the side of a matrix after a pool that covers all of it."""
    return math.ceil(side / WINDOW)


def count_visible(side: int) -> int:
    """Return how many cells of a pooled row a text of `side` words can influence."""
    return (side // WINDOW + 1) // WINDOW + 1


def zero_padded(matrices: Tensor, side: int) -> Tensor:
    """Return (P, M, side, side): zeros are added, or cut off where the matrices end in zeros."""
    height, width = matrices.shape[-2:]
    return functional.pad(matrices, (0, side - width, 0, side - height))


class Side(nn.Module):
    """The weights of a block for one of the two texts; the last block compresses nothing."""

    def __init__(self, sizes: Sizes, *, last: bool) -> None:
        super().__init__()
        self.to_itself = Attention(sizes.dimension, sizes.dropout)
        self.crossed = Attention(sizes.dimension, sizes.dropout)
        self.compression = None if last else Compression(sizes)


class Block(nn.Module):
    """An interaction block, with the GRU that reads its matching vectors."""

    def __init__(self, sizes: Sizes, *, last: bool) -> None:
        super().__init__()
        self.utterance = Side(sizes, last=last)
        self.response = Side(sizes, last=last)
        matrices = len(sizes.matrices)
        self.matching = Matching(matrices, sizes.words, sizes.dimension, sizes.dropout)
        self.reader = nn.GRU(sizes.dimension, sizes.dimension, batch_first=True)
        self.scorer = nn.Linear(sizes.dimension, 1)

    def score(self, matching: Tensor, turns: Tensor) -> Tensor:
        """Return (E,) logits of examples from the (P, d) vectors of their utterances in order.

        `turns` is (E,) int64, the utterances of each example.
        """
        padded = pad_sequence(list(torch.split(matching, turns.tolist())), batch_first=True)
        packed = pack_padded_sequence(padded, turns, batch_first=True, enforce_sorted=False)
        logits: Tensor = self.scorer(self.reader(packed)[1][0])
        return logits.squeeze(-1)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of texts by their indices, so that a text in many pairs is stored once.

    Attributes:
        utterances: (U, n) int64 words, padded.
        responses: (R, m) int64 words, padded.
        utterance: (P,) int64 index of each pair's utterance.
        response: (P,) int64 index of its response.
    """

    utterances: Tensor
    responses: Tensor
    utterance: Tensor
    response: Tensor


class InteractionNetwork(nn.Module):
    """L interaction blocks over word embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.dimension, PADDING)
        self.blocks = nn.ModuleList(
            Block(sizes, last=number == sizes.blocks) for number in range(1, sizes.blocks + 1)
        )
        self.dropout = nn.Dropout(sizes.dropout)

    def match(self, pairs: Pairs) -> Tensor:
        """Return (L, P, d) matching vectors of each pair in each block.

        The embeddings and the first block's self-attention do not depend on the other text of a
        pair, so they are computed once for each text.
        """
        blocks = self._blocks()
        utterances = self.dropout(self.embedding(pairs.utterances))
        responses = self.dropout(self.embedding(pairs.responses))
        u_known = pairs.utterances != PADDING
        r_known = pairs.responses != PADDING
        u_attended = blocks[0].utterance.to_itself(utterances, utterances, u_known)
        r_attended = blocks[0].response.to_itself(responses, responses, r_known)

        u_initial = utterances[pairs.utterance]
        r_initial = responses[pairs.response]
        u_mask = u_known[pairs.utterance]
        r_mask = r_known[pairs.response]
        cells = u_mask[:, :, None] & r_mask[:, None]
        u = u_initial
        r = r_initial
        vectors = []
        for index, block in enumerate(blocks):
            is_first = index == 0
            if is_first:
                u_self = u_attended[pairs.utterance]
                r_self = r_attended[pairs.response]
            else:
                u_self = block.utterance.to_itself(u, u, u_mask)
                r_self = block.response.to_itself(r, r, r_mask)
            u_cross = block.utterance.crossed(u, r, r_mask)
            r_cross = block.response.crossed(r, u, u_mask)
            both = {1: (u, r), 2: (u_self, r_self), 3: (u_cross, r_cross)}
            matrices = [similarity(*both[number]) for number in self.sizes.matrices]
            vectors.append(block.matching(torch.stack(matrices, dim=1) * cells[:, None]))
            if block.utterance.compression and block.response.compression:
                u_added = None if is_first else u_initial
                r_added = None if is_first else r_initial
                u = block.utterance.compression(u, u_self, u_cross, u_added)
                r = block.response.compression(r, r_self, r_cross, r_added)
        return torch.stack(vectors)

    def score(self, matching: Tensor, turns: Tensor) -> Tensor:
        """Return (E, L) logits of examples, one for each block.

        Args:
            matching: (L, P, d) vectors, the pairs of an example in the order of its utterances.
            turns: (E,) int64 utterances of each example, on the CPU.
        """
        of_block = zip(self._blocks(), matching, strict=True)
        return torch.stack([block.score(vectors, turns) for block, vectors in of_block], dim=-1)

    def _blocks(self) -> Sequence[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]


def similarity(utterance: Tensor, response: Tensor) -> Tensor:
    """Return the (P, n, m) products of (P, n, d) and (P, m, d) words, divided by √d."""
    return utterance @ response.mT / math.sqrt(utterance.shape[-1])


def final_score(logits: Tensor, objective: Objective) -> Tensor:
    """Return (E,) scores from (E, L) logits of blocks; higher is better.

    With the local loss each block gives a probability, and the score is their sum (eq. 16). With
    the global loss the blocks' logits add up to the logit of one probability, as in the released
    code.
    """
    return logits.sigmoid().sum(-1) if objective == "local" else logits.sum(-1)


def matching_loss(logits: Tensor, labels: Tensor, objective: Objective) -> Tensor:
    """Return the cross-entropy of labels, the mean over examples.

    - `global`: of the sum of the blocks' logits, as in the released code. The printed eq. 17 is of
      eq. 16 instead, a sum of probabilities that may exceed 1, so that its logarithm is undefined.
    - `local` (eq. 18): of every block's score, summed over the blocks.

    Args:
        logits: (E, L), one for each block.
        labels: (E,) float32, 1 for the true response, 0 for another.
        objective: One of the two.
    """
    if objective == "global":
        return functional.binary_cross_entropy_with_logits(logits.sum(-1), labels)
    of_block = functional.binary_cross_entropy_with_logits(
        logits, labels[:, None].expand_as(logits), reduction="none"
    )
    return of_block.sum(-1).mean()
