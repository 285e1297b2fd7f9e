import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.arrays import Float64
from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.additivity import evaluate_additivity
from turnwise.models.roles import EncoderKind, Role, relation_to


def vector(
    encoder: UtteranceEncoder, dialogue: Dialogue, turn: int, role: Role, of: int
) -> Float64:
    said = dialogue.utterances[turn]
    relation = relation_to(said.speaker, dialogue.utterances[of].speaker)
    encoded: Float64 = encoder.encode([said.text], role, relation)[0].astype(np.float64)
    return encoded


def test_mixtures_are_compared_with_their_parts(
    tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    some = [Dialogue(d.id, d.utterances[:4]) for d in dialogues[:3]]
    by_distance: dict[int, list[float]] = {}
    above: dict[int, list[bool]] = {}
    for dialogue in some:
        for target in range(2, len(dialogue.utterances)):
            text = dialogue.utterances[target].text
            after = encoder.encode([text], Role.AFTER)[0].astype(np.float64)
            for older in range(target - 1):
                b1 = vector(encoder, dialogue, older, Role.FIRST, target)
                b2 = vector(encoder, dialogue, target - 1, Role.SECOND, target)
                cosine = float((b1 + b2) @ after / np.linalg.norm(b1 + b2))
                by_distance.setdefault(target - 1 - older, []).append(cosine)
                is_above = bool(cosine > max(b1 @ after, b2 @ after))
                above.setdefault(target - 1 - older, []).append(is_above)
    pair, *others = evaluate_additivity({"x": encoder}, some)
    assert pair.system == "x · pair"
    assert len(others) == 3
    for distance, cosines in by_distance.items():
        assert pair.metrics[f"cosine/d={distance}"] == pytest.approx(np.mean(cosines), abs=1e-5)
    assert pair.metrics["above_both"] == pytest.approx(
        np.mean([np.mean(each) for each in above.values()])
    )


def test_an_encoder_without_pairs_has_no_mixtures(
    tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    with pytest.raises(TurnwiseError, match="mixes two utterances"):
        evaluate_additivity({"x": tiny_encoder(EncoderKind.CURVED)}, dialogues)


def test_one_dialogue_has_no_utterance_of_another(
    tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    with pytest.raises(TurnwiseError, match="only one dialogue"):
        evaluate_additivity({"x": tiny_encoder(EncoderKind.TRIPLE)}, dialogues[:1])
