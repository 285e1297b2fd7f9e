from itertools import combinations

import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from tests.unit.models.evaluation.conftest import cosines
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.distances import evaluate_distances
from turnwise.models.roles import EncoderKind

REACH = 2


@pytest.mark.parametrize("kind", [EncoderKind.CURVED, EncoderKind.TRIPLE, EncoderKind.SINGLE])
def test_cosines_are_averaged_by_distance_and_direction(
    kind: EncoderKind, tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    encoder = tiny_encoder(kind)
    some = [Dialogue(d.id, d.utterances[:4]) for d in dialogues[:3]]
    (row,) = evaluate_distances({"x": encoder}, some, REACH)
    by_distance: dict[int, list[float]] = {}
    right = []
    for said in (dialogue.utterances for dialogue in some):
        found = cosines(encoder, said, said)
        for i, j in combinations(range(len(said)), 2):
            if j - i <= REACH:
                forward = found[i, j]
                backward = found[j, i]
                by_distance.setdefault(j - i, []).append(forward)
                by_distance.setdefault(i - j, []).append(backward)
                tie = abs(forward - backward) < 1e-6
                right.append(0.5 if tie else float(forward > backward))
    for distance, of_pairs in by_distance.items():
        assert row.metrics[f"cosine/d={distance}"] == pytest.approx(np.mean(of_pairs), abs=1e-5)
    assert row.metrics["right_order"] == pytest.approx(np.mean(right), abs=0.05)


def test_a_single_utterance_has_no_distance(tiny_encoder: Encoders) -> None:
    alone = [Dialogue("d", (Utterance("A", "Hello."),))]
    with pytest.raises(TurnwiseError, match="two utterances"):
        evaluate_distances({"x": tiny_encoder(EncoderKind.CURVED)}, alone, REACH)
