"""Whether a mixture of two utterances is nearer to what comes next than its parts (C3L).

C3L teaches that the mixture (b1_i + b2_j) / 2 of two utterances of a dialogue is near the utterance
that follows them, and that a mixture with an utterance of another dialogue is near nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.metrics import Indices
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import EncodedSplit, encode_split, make_split

DISTANCES = (1, 2, 3, 4)
"""Utterances from the older to the newer one of a pair."""
LEAST_NORM = 1e-6
"""Below it two vectors are opposite, and their mixture is near nothing."""


def evaluate_additivity(
    encoders: Mapping[str, UtteranceEncoder], dialogues: Iterable[Dialogue]
) -> list[Row]:
    """Return the cosines of mixtures, and of their parts, with the true next utterance.

    A pair is the last utterance of a context and one that was said 1 to 4 utterances before it.

    Args:
        encoders: The encoders by their names in the table. Those without pairs have no rows.
        dialogues: The dialogues of a split.

    Returns:
        Four rows for each encoder: the pairs as they are, in the wrong order, and with the older or
        the newer utterance of another dialogue. The metrics are means over distances: `cosine`, of
        the mixture with the next utterance, also as `cosine/d=DISTANCE`; `first` and `second`,
        those of its parts; `above_both`, the share of the mixtures that are nearer than both parts;
        and `between_parts`, the cosine of the parts with each other.

    Raises:
        TurnwiseError: No encoder has pairs, or there are no two dialogues of more than two
            utterances.
    """
    paired = {name: encoder for name, encoder in encoders.items() if encoder.kind.paired}
    if not paired:
        raise TurnwiseError("none of the models mixes two utterances: it takes a triple encoder")
    split = make_split(dialogues, full_pool=False)
    if len(set(split.dialogues.tolist())) < 2:
        raise TurnwiseError("only one dialogue is longer than 2 utterances")
    return [
        row for name, each in paired.items() for row in _compare(name, encode_split(each, split))
    ]


class _Pairs(NamedTuple):
    """N pairs of utterances and what came next; the vectors are (N, d)."""

    older_first: Float32
    older_second: Float32
    newer_first: Float32
    newer_second: Float32
    after: Float32
    distance: Indices
    dialogue: Indices


def _compare(name: str, encoded: EncodedSplit) -> list[Row]:
    pairs = _collect_pairs(encoded)
    other = _draw_of_other_dialogues(pairs.dialogue)
    mixed = {
        "pair": (pairs.older_first, pairs.newer_second),
        "wrong order": (pairs.newer_first, pairs.older_second),
        "older of another dialogue": (pairs.older_first[other], pairs.newer_second),
        "newer of another dialogue": (pairs.older_first, pairs.newer_second[other]),
    }
    return [_measure(f"{name} · {how}", *parts, pairs) for how, parts in mixed.items()]


def _collect_pairs(encoded: EncodedSplit) -> _Pairs:
    found = [
        (context, distance)
        for context, length in enumerate(encoded.split.lengths)
        for distance in DISTANCES
        if distance < length
    ]
    of_pair = np.array([context for context, _ in found])
    first = [encoded.to_mix[context][0] for context in of_pair]
    second = [encoded.to_mix[context][1] for context in of_pair]
    distance = np.array([distance for _, distance in found])
    older = -1 - distance
    return _Pairs(
        older_first=np.stack([b1[index] for b1, index in zip(first, older, strict=True)]),
        older_second=np.stack([b2[index] for b2, index in zip(second, older, strict=True)]),
        newer_first=np.stack([b1[-1] for b1 in first]),
        newer_second=np.stack([b2[-1] for b2 in second]),
        after=encoded.vectors[encoded.split.true[of_pair]],
        distance=distance,
        dialogue=encoded.split.dialogues[of_pair],
    )


def _draw_of_other_dialogues(dialogue: Indices) -> Indices:
    """Return for each pair the index of a random one of another dialogue, always the same."""
    generator = np.random.default_rng(0)
    drawn = generator.permutation(len(dialogue))
    while (same := np.flatnonzero(dialogue[drawn] == dialogue)).size:
        drawn[same] = generator.integers(len(dialogue), size=len(same))
    return drawn


def _measure(name: str, first: Float32, second: Float32, pairs: _Pairs) -> Row:
    mixture = first.astype(np.float64) + second
    norms = np.linalg.norm(mixture, axis=1)
    cosine = _dot(mixture, pairs.after) / np.maximum(norms, LEAST_NORM)
    of_first = _cosines(first, pairs.after)
    of_second = _cosines(second, pairs.after)
    outcomes = Outcomes(cosine, pairs.distance.astype(str), pairs.dialogue)
    overall = {
        "cosine": cosine,
        "first": of_first,
        "second": of_second,
        "above_both": (cosine > np.maximum(of_first, of_second)).astype(np.float64),
        "between_parts": _cosines(first, second),
    }
    means = {name: replace(outcomes, values=values).mean for name, values in overall.items()}
    by_distance = {
        f"cosine/d={distance}": float(cosine[pairs.distance == distance].mean())
        for distance in np.unique(pairs.distance)
    }
    return Row(name, means | by_distance, 0.0, outcomes)


def _cosines(one: Float32, other: Float32) -> Float64:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines: Float64 = _dot(one, other) / lengths
    return cosines


def _dot(one: Float32 | Float64, other: Float32) -> Float64:
    products: Float64 = np.einsum("nd,nd->n", one, other, dtype=np.float64)
    return products
