"""Teaches a vocabulary the words of other languages, by their translations alone.

New word pieces get vectors without any training: those with which the vectors of a translation add
up to about the same as the vectors of its source. This is one linear regression over all sentences.
It puts "Bahnhof" near "station", so that an English encoder reads German word by word.
"""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from scipy import sparse  # type: ignore[import-untyped]
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, trainers
from tokenizers.models import WordPiece
from torch import nn
from transformers import PreTrainedTokenizerFast

from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import transformer_of
from turnwise.models.errors import ModelError

_UNKNOWN = "[UNK]"
FEWEST = 3
"""Times that a new word piece occurs at least."""
NEW_WEIGHT = 0.5
"""Pull of a new piece's vector toward the mean vector."""
OLD_WEIGHT = 20.0
"""Least pull of a known piece's vector toward the vector that it has."""
OLD_WEIGHT_EACH = 0.2
"""Pull of a known piece's vector for each time that the piece occurs in the sources."""
ITERATIONS = 25
"""Iterations of the conjugate gradients."""
_TINY = float(np.finfo(np.float32).tiny)


class Translation(NamedTuple):
    """A text in the language of the base, and the text that gets the same vectors."""

    source: str
    target: str


def add_words(model: SentenceTransformer, translations: Sequence[Translation], number: int) -> None:
    """Add the most useful word pieces of translations to a vocabulary, with vectors for them.

    Args:
        model: An encoder with a vocabulary of word pieces, as BERT has.
        translations: Texts that the model knows, and their translations.
        number: Word pieces that are learned. Those that the model has already are not new.

    Raises:
        ModelError: The vocabulary is of another kind.
    """
    known = model.tokenizer
    state = json.loads(known.backend_tokenizer.to_str())
    if state["model"]["type"] != "WordPiece":
        raise ModelError("the base has no vocabulary of word pieces, which new ones can join")
    sources = [pair.source for pair in translations]
    targets = [pair.target for pair in translations]
    pieces = learn_pieces(known.backend_tokenizer, targets, number)
    tokenizer = _with_pieces(state, pieces)
    transformer = transformer_of(model)
    table = cast("nn.Embedding", transformer.get_input_embeddings())
    old = table.weight.data[: len(known)].cpu().numpy()
    vectors = solve_vectors(count_pieces(tokenizer, sources), count_pieces(tokenizer, targets), old)
    transformer.set_input_embeddings(
        nn.Embedding.from_pretrained(
            torch.from_numpy(vectors).to(table.weight.device),
            freeze=False,
            padding_idx=table.padding_idx,
        )
    )
    transformer.config.vocab_size = len(vectors)
    cast("Any", model[0]).processor = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        model_max_length=known.model_max_length,
        **known.special_tokens_map,
    )


def _with_pieces(state: dict[str, Any], pieces: Sequence[str]) -> Tokenizer:
    """Return the tokenizer of a JSON with more word pieces.

    Special tokens that were added later become a part of the vocabulary, or new pieces would get
    their numbers.
    """
    added = {token["content"]: token["id"] for token in state["added_tokens"]}
    vocabulary: dict[str, int] = state["model"]["vocab"] | added
    for piece in pieces:
        vocabulary.setdefault(piece, len(vocabulary))
    wider = {"model": state["model"] | {"vocab": vocabulary}, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(state | wider))


def learn_pieces(known: Tokenizer, texts: Sequence[str], number: int) -> list[str]:
    """Return up to `number` word pieces of texts, split into words as a tokenizer splits them."""
    learned = Tokenizer(WordPiece(unk_token=_UNKNOWN))
    learned.normalizer = known.normalizer
    learned.pre_tokenizer = known.pre_tokenizer
    # The trainer numbers the characters inside words in an order of its own, which changes from run
    # to run and decides between pieces that are equally frequent. So they get their numbers first.
    words = {word for text in texts for word in known.normalizer.normalize_str(text).split()}
    characters = {character for word in words for character in word[1:] if character.isalnum()}
    inside = sorted(f"##{character}" for character in characters)
    trainer = trainers.WordPieceTrainer(
        vocab_size=number,
        min_frequency=FEWEST,
        show_progress=False,
        special_tokens=[_UNKNOWN, *inside],
    )
    learned.train_from_iterator(texts, trainer)
    pieces = learned.get_vocab()
    return sorted(pieces.keys() - {_UNKNOWN}, key=pieces.__getitem__)


def count_pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> sparse.csr_array:
    """Return how often each text has each piece of the vocabulary, (texts, V) float32."""
    encoded = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
    ends = np.cumsum([0, *map(len, encoded)])
    pieces = np.fromiter(chain.from_iterable(encoded), np.int64, ends[-1])
    counts = sparse.csr_array(
        (np.ones(len(pieces), np.float32), pieces, ends),
        shape=(len(texts), tokenizer.get_vocab_size()),
    )
    counts.sum_duplicates()
    return counts


def solve_vectors(sources: sparse.csr_array, targets: sparse.csr_array, old: Float32) -> Float32:
    """Return the vectors of all pieces under which translations add up to their sources.

    It is a ridge regression that minimises, over the vectors v of all pieces,

        Σ_i |Σ_p t_ip v_p - Σ_p s_ip e_p|² / n_i + Σ_p w_p |v_p - o_p|².

    The first sum is over the translations: n_i is the number of pieces of translation i, and e are
    the known vectors. The second sum pulls each piece p to its prior o_p: a known piece to its own
    vector, a new one to the mean vector of the sources.

    Args:
        sources: s, how often each of n sources has each of V pieces, (n, V).
        targets: t, the same for their translations.
        old: e, the vectors (O, d) of the first O pieces. Others count for nothing in a source.

    Returns:
        (V, d) float32.
    """
    number = len(old)
    known = sources[:, :number]
    frequencies = known.sum(0)
    mean = frequencies @ old / frequencies.sum()
    new = np.repeat(mean[None], targets.shape[1] - number, 0)
    prior = np.vstack([old, new])
    weights = np.full(len(prior), NEW_WEIGHT, np.float32)
    weights[:number] = np.maximum(OLD_WEIGHT, OLD_WEIGHT_EACH * frequencies)
    # The equations of a translation are divided by the square root of its length.
    lengths = np.maximum(targets.sum(1), 1)
    matrix = sparse.diags_array(lengths**-0.5).astype(np.float32) @ targets
    wanted = lengths[:, None] ** -0.5 * (known @ old)
    residual = wanted - matrix @ prior
    return prior + _solve_ridge(matrix.tocsr(), weights, matrix.T @ residual)


def _solve_ridge(matrix: sparse.csr_array, weights: Float32, right: Float32) -> Float32:
    """Return X (V, d) with (MᵀM + diag(w)) X = R, by preconditioned conjugate gradients.

    The columns are independent systems. The preconditioner is the diagonal (Hestenes and Stiefel,
    1952; Jacobi).

    Args:
        matrix: M, (n, V).
        weights: w, (V,) above 0.
        right: R, (V, d).
    """
    diagonal = (matrix.multiply(matrix).sum(0) + weights)[:, None]
    transposed = matrix.T.tocsr()
    solution = np.zeros_like(right)
    residual = right
    preconditioned = residual / diagonal
    direction = preconditioned
    size = (residual * preconditioned).sum(0)
    for _ in range(ITERATIONS):
        product = transposed @ (matrix @ direction) + weights[:, None] * direction
        step = size / np.maximum((direction * product).sum(0), _TINY)
        solution += step * direction
        residual = residual - step * product
        preconditioned = residual / diagonal
        last_size = size
        size = (residual * preconditioned).sum(0)
        direction = preconditioned + size / np.maximum(last_size, _TINY) * direction
    return solution
