import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.rerankers import save_tiny_pairwise
from tests.unit.models.conftest import Folder
from turnwise.models.card import reranker_kind
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import ModelError
from turnwise.models.pairwise import PairwiseModel, Projectors, dialogue_heat_map
from turnwise.models.roles import EncoderKind

TEXTS = ["one", "two words", "and three", "four"]


@pytest.fixture
def pairwise_folder(tmp_path: Path, tiny_encoder_folder: Folder) -> Path:
    return save_tiny_pairwise(tmp_path / "pairwise", tiny_encoder_folder(EncoderKind.SINGLE))


@pytest.fixture
def model(pairwise_folder: Path) -> PairwiseModel:
    return PairwiseModel.load(pairwise_folder, "cpu")


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def projected(weights: dict[str, np.ndarray], name: str, given: np.ndarray) -> np.ndarray:
    hidden = np.maximum(weights[f"{name}.0.weight"] @ given + weights[f"{name}.0.bias"], 0)
    return unit(weights[f"{name}.2.weight"] @ hidden + weights[f"{name}.2.bias"])


@pytest.mark.parametrize("said", [1, 2, 3, 4])
def test_vectors_are_their_formula(model: PairwiseModel, pairwise_folder: Path, said: int) -> None:
    stored = load_file(pairwise_folder / "reranker.safetensors")
    weights = {name: value.astype(np.float64) for name, value in stored.items()}
    embeddings = model.embed(TEXTS[:said])
    recent = embeddings[-3:]
    filled = np.concatenate([weights["padding"][: 3 - len(recent)], recent]).reshape(-1)
    context = projected(weights, "context", filled)
    response = projected(weights, "response", embeddings[0].astype(np.float64))
    assert np.allclose(model.project_context(embeddings), context, atol=1e-5)
    assert np.allclose(model.project_responses(embeddings)[0], response, atol=1e-5)


def test_cached_embeddings_give_the_context_of_the_texts(model: PairwiseModel) -> None:
    cached = np.concatenate([model.embed([text]) for text in TEXTS])
    for end in range(1, len(TEXTS) + 1):
        by_text = model.encode_contexts([TEXTS[:end]])[0]
        assert np.allclose(model.project_context(cached[:end]), by_text, atol=1e-5)


def test_an_empty_context_is_refused(model: PairwiseModel) -> None:
    with pytest.raises(ValueError, match="at least one utterance"):
        model.project_context(np.empty((0, 32), np.float32))
    with pytest.raises(ValueError, match="at least one utterance"):
        model.encode_contexts([["one"], []])


def test_fingerprints_tell_models_apart(model: PairwiseModel) -> None:
    before = model.fingerprint
    model.projectors.padding.data[0, 0] += 1
    assert PairwiseModel(model.encoder, model.projectors).fingerprint != before


def test_a_heat_map_compares_each_context_with_each_response(model: PairwiseModel) -> None:
    dialogue = Dialogue("d", tuple(Utterance("AB"[n % 2], text) for n, text in enumerate(TEXTS)))
    heat = dialogue_heat_map(model, [u.text for u in dialogue.utterances])
    assert heat.shape == (4, 4)
    wanted = model.encode_contexts([TEXTS[:3]])[0] @ model.encode_responses([TEXTS[3]])[0]
    assert heat[2, 3] == pytest.approx(wanted, abs=1e-5)
    assert np.array_equal(heat, dialogue_heat_map(model, TEXTS))


def test_a_folder_tells_its_kind(
    pairwise_folder: Path, tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    assert reranker_kind(pairwise_folder) == "pairwise"
    for other in (tmp_path, tmp_path / "absent", tiny_encoder_folder(EncoderKind.TRIPLE)):
        assert reranker_kind(other) is None
        with pytest.raises(ModelError, match="holds no pairwise re-ranker"):
            PairwiseModel.load(other)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"embedding": 16}, r"reranker\.safetensors cannot be loaded"),
        ({"context_length": 2}, r"reranker\.safetensors cannot be loaded"),
        ({"projection": -1}, "names sizes that do not fit"),
        ({"widths": 3}, "names sizes that do not fit"),
        ({"sizes": [32, 16, 3]}, r"reranker\.json names no sizes"),
        ({"kind": "ioi"}, "holds no pairwise re-ranker"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(
    pairwise_folder: Path, change: dict[str, object], said: str
) -> None:
    card = json.loads((pairwise_folder / "reranker.json").read_text())
    (card if change.keys() <= card.keys() else card["sizes"]).update(change)
    (pairwise_folder / "reranker.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match=f"^'{pairwise_folder}'.* {said}"):
        PairwiseModel.load(pairwise_folder, "cpu")


def test_projectors_of_another_encoder_are_refused(model: PairwiseModel) -> None:
    others = Projectors(embedding=16, projection=16, context_length=3)
    with pytest.raises(ModelError, match="take embeddings of 16, not of 32"):
        PairwiseModel(model.encoder, others)
