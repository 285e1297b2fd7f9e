"""How similarity falls with the distance of utterances, forward and backward (CCL, Figure 6).

CCL teaches cos(b_i, a_j) to fall with the distance from i to j, and to be 0 in the other direction.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.split import VectorTable
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs


def evaluate_distances(
    encoders: Mapping[str, UtteranceEncoder], dialogues: Iterable[Dialogue], reach: int
) -> list[Row]:
    """Return the mean cosine of an utterance with those at each distance, a row an encoder.

    Args:
        encoders: The encoders by their names in the table.
        dialogues: The dialogues of a split.
        reach: The greatest distance.

    Returns:
        Rows of `cosine`, the mean over the distances, and `cosine/d=DISTANCE`, negative for earlier
        utterances; and `right_order`, the share of pairs whose cosine is larger forward than
        backward. Equal ones count half.

    Raises:
        TurnwiseError: No dialogue has two utterances.
    """
    dialogues = [dialogue for dialogue in dialogues if len(dialogue.utterances) > 1]
    if not dialogues:
        raise TurnwiseError("no dialogue has two utterances")
    return [_measure(name, encoder, dialogues, reach) for name, encoder in encoders.items()]


def _measure(name: str, encoder: UtteranceEncoder, dialogues: list[Dialogue], reach: int) -> Row:
    table = VectorTable(encoder, [item for d in dialogues for item in _inputs(d)])
    cosines = [_compute_cosines(table, dialogue) for dialogue in dialogues]
    means = {}
    for distance in [*range(-reach, 0), *range(1, reach + 1)]:
        found = np.concatenate([np.diagonal(square, distance) for square in cosines])
        if len(found):
            means[f"cosine/d={distance}"] = float(found.mean())
    forward = _collect_near(cosines, reach)
    backward = _collect_near([square.T for square in cosines], reach)
    right = (forward > backward) + (forward == backward) / 2
    overall = {"cosine": float(np.mean(list(means.values()))), "right_order": float(right.mean())}
    return Row(name, overall | means, 0.0)


def _compute_cosines(table: VectorTable, dialogue: Dialogue) -> Float32:
    """Return cos(b_i, a_j) of the utterances of a dialogue, (n, n)."""
    speakers = np.array([said.speaker for said in dialogue.utterances])
    after = table[_as_targets(dialogue)]
    to_same = table[_in_context(dialogue, Relation.SAME)] @ after.T
    to_other = table[_in_context(dialogue, Relation.OTHER)] @ after.T
    cosines: Float32 = np.where(speakers[:, None] == speakers, to_same, to_other)
    return cosines


def _collect_near(cosines: list[Float32], reach: int) -> Float64:
    """Return the cosines above the diagonal up to a distance, rounded so that equal ones tie."""
    near = [np.diagonal(square, distance) for square in cosines for distance in range(1, reach + 1)]
    return np.concatenate(near).astype(np.float64).round(6)


def _inputs(dialogue: Dialogue) -> list[RoleText]:
    in_context = [item for relation in Relation for item in _in_context(dialogue, relation)]
    return _as_targets(dialogue) + in_context


def _as_targets(dialogue: Dialogue) -> list[RoleText]:
    return candidate_inputs(dialogue.texts)


def _in_context(dialogue: Dialogue, relation: Relation) -> list[RoleText]:
    return [RoleText(said.text, Role.SECOND, relation) for said in dialogue.utterances]
