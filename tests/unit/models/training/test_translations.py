from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tests.unit.models.conftest import Folder
from turnwise.models.encoder.torch import UtteranceEncoder, transformer_of
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Role
from turnwise.models.training.base import load_learnable
from turnwise.models.training.translations import (
    NEW_WEIGHT,
    OLD_WEIGHT,
    OLD_WEIGHT_EACH,
    Translation,
    add_words,
    count_pieces,
    solve_vectors,
)

PAIRS = [Translation("a lake", "der see"), Translation("the lake?", "der see?")] * 3


def naive_vectors(sources: np.ndarray, targets: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Stack the weighted equations of sentences and of pieces, and solve them at once."""
    known = sources[:, : len(old)]
    often = known.sum(0)
    mean = often @ old / often.sum()
    prior = np.vstack([old, [mean] * (targets.shape[1] - len(old))])
    weights = np.full(len(prior), NEW_WEIGHT)
    weights[: len(old)] = np.maximum(OLD_WEIGHT, OLD_WEIGHT_EACH * often)
    lengths = targets.sum(1, keepdims=True)
    left = np.vstack([targets / lengths**0.5, np.diag(weights**0.5)])
    right = np.vstack([known @ old / lengths**0.5, weights[:, None] ** 0.5 * prior])
    return np.linalg.lstsq(left, right, rcond=None)[0]


def test_vectors_solve_the_regression() -> None:
    rng = np.random.default_rng(0)
    sources = rng.poisson(0.8, (60, 9)).astype(np.float32)
    targets = rng.poisson(0.8, (60, 9)).astype(np.float32)
    targets[:, 0] += 1  # no translation is empty
    old = rng.normal(size=(5, 3)).astype(np.float32)
    found = solve_vectors(sparse.csr_array(sources), sparse.csr_array(targets), old)
    assert np.allclose(found, naive_vectors(sources, targets, old), atol=1e-3)


def test_pieces_of_a_text_are_counted(tiny_encoder_folder: Folder) -> None:
    tokenizer = load_learnable(str(tiny_encoder_folder(EncoderKind.HEADS))).tokenizer
    counts = count_pieces(tokenizer.backend_tokenizer, ["aaa", "", "a b"])
    start, inner = tokenizer.convert_tokens_to_ids(["a", "##a"])
    assert counts.sum(1).tolist() == [3, 0, 2]
    assert counts.toarray()[:, [start, inner]].tolist() == [[1, 2], [0, 0], [1, 0]]


def test_what_the_model_knew_stays(tiny_encoder_folder: Folder) -> None:
    folder = str(tiny_encoder_folder(EncoderKind.HEADS))
    model = load_learnable(folder)
    before = model.tokenizer.get_vocab()
    add_words(model, PAIRS, 60)
    after = model.tokenizer.get_vocab()
    assert "see" in after.keys() - before.keys()
    assert {piece: after[piece] for piece in before} == before
    assert len(transformer_of(model).get_input_embeddings().weight) == len(after)
    read = "[B2] [O] [BEFORE] q"
    assert model.tokenizer(read)["input_ids"] == load_learnable(folder).tokenizer(read)["input_ids"]


def test_a_model_with_new_words_can_be_saved_and_loaded(
    tiny_encoder_folder: Folder, tmp_path: Path
) -> None:
    model = load_learnable(str(tiny_encoder_folder(EncoderKind.TRIPLE)))
    add_words(model, PAIRS, 60)
    model.save_pretrained(str(tmp_path), create_model_card=False)
    texts = ["der see", "lake?"]
    loaded = UtteranceEncoder(tmp_path, device="cpu")
    assert loaded.kind is EncoderKind.TRIPLE
    wanted = UtteranceEncoder(model).encode(texts, Role.AFTER)
    assert np.allclose(loaded.encode(texts, Role.AFTER), wanted, atol=1e-5)


def test_other_vocabularies_get_no_words(
    tiny_encoder_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_learnable(str(tiny_encoder_folder(EncoderKind.HEADS)))
    monkeypatch.setattr(type(model.tokenizer), "backend_tokenizer", UnigramTokenizer())
    with pytest.raises(ModelError, match="no vocabulary of word pieces"):
        add_words(model, PAIRS, 60)


class UnigramTokenizer:
    @staticmethod
    def to_str() -> str:
        return '{"model": {"type": "Unigram"}}'
