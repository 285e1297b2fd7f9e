from collections.abc import Callable

import numpy as np
import pytest

from turnwise.models.data import Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.vectors import VectorTable, after_keys, context_keys
from turnwise.models.roles import EncoderKind, Relation, Role

HISTORY = (Utterance("A", "is the shop open"), Utterance("B", "until six"))


def test_context_keys_relate_each_speaker_to_the_target_speaker() -> None:
    keys = context_keys(HISTORY, "B", Role.FIRST)
    assert [relation for _, _, relation in keys] == [Relation.OTHER, Relation.SAME]


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_a_table_gives_the_vectors_of_the_encoder(
    kind: EncoderKind, tiny_encoder: Callable[[EncoderKind], UtteranceEncoder]
) -> None:
    encoder = tiny_encoder(kind)
    context = context_keys(HISTORY, "A", Role.SECOND)
    table = VectorTable(encoder, [*context, *after_keys(["until six"])])
    texts = [said.text for said in HISTORY]
    expected = encoder.encode(texts, Role.SECOND, [Relation.SAME, Relation.OTHER])
    np.testing.assert_allclose(table[context], expected, atol=1e-5)
    after = encoder.encode(["until six"], Role.AFTER)
    np.testing.assert_allclose(table[after_keys(["until six"])], after, atol=1e-5)
