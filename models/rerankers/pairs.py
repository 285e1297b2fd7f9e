"""The pairs that a cross-encoder reads: the end of a context and a candidate."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.roles import break_up_tokens, relation_to

BATCH = 32
"""Pairs that `PairReranker.scores` computes at once."""
SPEAKERS = ("[E]", "[O]")
"""Tokens for who said an utterance: the one who would say the candidate, or another speaker."""
UTTERANCES = 3
"""Utterances of a context that a cross-encoder reads, the newest: a pair's time grows with them."""

Pair = tuple[str, str]
"""The two texts that a cross-encoder reads: the end of a context and a candidate."""


@dataclass(frozen=True, slots=True)
class PairTokens:
    """The word pieces of a pair, special ones included, and the type of each."""

    ids: list[int]
    types: list[int]

    def __len__(self) -> int:
        return len(self.ids)


class PairReranker(ABC):
    """Scores candidates by reading each of them together with the end of a context.

    The service calls `read_context`, `pair`, `tokenize` and `forward`. Evaluations call
    `read_context` and `scores`.

    Attributes:
        name: The model's name, as `model_name` returns it.
        dimension: Numbers that `forward` returns for a pair.
    """

    dimension = 1
    name: str

    def __init__(self, *, marked: bool, end: str = "") -> None:
        """Say how the model reads a context.

        Args:
            marked: Whether the vocabulary has the `SPEAKERS`.
            end: The token that ends every utterance; without one, spaces join the utterances.
        """
        self._marked = marked
        self._end = end

    @property
    @abstractmethod
    def runtime(self) -> str:
        """The runtime, precision and device, such as "onnxruntime float32 on cpu"."""

    @abstractmethod
    def tokenize(self, pairs: Sequence[Pair], /) -> list[PairTokens]:
        """Return each pair's word pieces, at most as many as the model reads; see `cut_pair`."""

    @abstractmethod
    def forward(self, tokens: list[PairTokens], /) -> Float32:
        """Score n pairs in word pieces as one padded batch, n ≥ 1.

        Returns:
            (n, 1) float32, higher is better: the logit of the probability that the pair fits.
        """

    def read_context(self, utterances: Sequence[Utterance], speaker: str) -> list[str]:
        """Return the texts of a context, each behind the token of its speaker if there is one.

        Args:
            utterances: The utterances, oldest first.
            speaker: The speaker who would say the candidates.
        """
        if not self._marked:
            return [said.text for said in utterances]
        return [
            f"[{relation_to(said.speaker, speaker)}] {break_up_tokens(said.text)}"
            for said in utterances
        ]

    def pair(self, context: Sequence[str], candidate: str) -> Pair:
        """Return the two texts of a pair; the first one has the end of a context.

        Args:
            context: What `read_context` returned.
            candidate: The text of the candidate.
        """
        if self._marked:
            candidate = break_up_tokens(candidate)
        said = context[-UTTERANCES:]
        if self._end:
            return self._end.join([*said, ""]), candidate
        return " ".join(said), candidate

    def scores(self, context: Sequence[str], candidates: Sequence[str]) -> Float32:
        """Return the scores (C,) of candidates after a context, higher is better.

        Args:
            context: What `read_context` returned.
            candidates: C texts.
        """
        tokens = self.tokenize([self.pair(context, candidate) for candidate in candidates])
        batches = [tokens[at : at + BATCH] for at in range(0, len(tokens), BATCH)]
        return np.concatenate([self.forward(batch)[:, 0] for batch in batches])


def cut_pair(encoded: Encoding, limit: int | None) -> PairTokens:
    """Return the word pieces of a pair, at most `limit` of them; None for all.

    A pair that is too long loses word pieces of its longer text, or of both: the context loses its
    start, the candidate its end.
    """
    if limit is None or len(encoded.ids) <= limit:
        return PairTokens(encoded.ids, encoded.type_ids)
    kept = _keep_pieces(encoded.sequence_ids, limit)
    return PairTokens(
        [encoded.ids[index] for index in kept], [encoded.type_ids[index] for index in kept]
    )


def _keep_pieces(sequences: Sequence[int | None], limit: int) -> list[int]:
    """Return the indices of the word pieces to keep.

    Args:
        sequences: The text of each word piece, 0 or 1; None for a special one.
        limit: Word pieces to keep.
    """
    first = [index for index, text in enumerate(sequences) if text == 0]
    second = [index for index, text in enumerate(sequences) if text == 1]
    room = limit - sequences.count(None)
    # Either text may have half of the room, or what the other text leaves.
    room_for_first = max(room // 2, room - len(second))
    kept_first = first[max(len(first) - room_for_first, 0) :]
    kept_second = second[: room - len(kept_first)]
    kept = {*kept_first, *kept_second}
    return [index for index, text in enumerate(sequences) if text is None or index in kept]
