"""Tiny untrained re-rankers, made by code."""

import shutil
from pathlib import Path

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerBase,
)

from turnwise.models.encoder.torch import load_sentence_transformer, transformer_of
from turnwise.models.network_folder import save_reranker
from turnwise.models.pairwise import ENCODER, Projectors
from turnwise.models.rerankers.cascade import Cascade, RerankedCalibration
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.rerankers.ioi.network import InteractionNetwork, Sizes
from turnwise.models.rerankers.ioi.vocabulary import Vocabulary
from turnwise.models.rerankers.pack import pack

CASCADE = Cascade(
    candidates=3,
    weight=0.5,
    below=1.0,
    confidence=RerankedCalibration(before=0.5, logit=0.25, margin=0.5, stayed=0.25, offset=-0.5),
)
"""The cascade of a re-ranker that reads the first hits of every turn."""
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


def tiny_ioi(words: tuple[str, ...] = LETTERS) -> IoI:
    torch.manual_seed(0)
    vocabulary = Vocabulary(words)
    sizes = Sizes(vocabulary=len(vocabulary), dimension=8, blocks=2, words=12, turns=3)
    return IoI(InteractionNetwork(sizes).eval(), vocabulary)


def save_tiny_pairwise(folder: Path, encoder: Path) -> Path:
    """Write a pairwise model over a plain encoder of dimension 32."""
    torch.manual_seed(0)
    projectors = Projectors(embedding=32, projection=16, context_length=3)
    save_reranker(folder, "pairwise", projectors, projectors.sizes)
    model = SentenceTransformer(str(encoder), device="cpu")
    model.save_pretrained(str(folder / ENCODER), create_model_card=False)
    return folder


def save_tiny_classifier(
    folder: Path, tokenizer: PreTrainedTokenizerBase, classes: int, *, longest: int
) -> None:
    """Write a random BERT that reads pairs of at most so many word pieces."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=longest,
        num_labels=classes,
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_tiny_cross_encoder(folder: Path, encoder: Path, classes: int = 1) -> Path:
    """Write a cross-encoder as sentence-transformers does; it reads 128 characters at most."""
    save_tiny_classifier(folder, AutoTokenizer.from_pretrained(encoder), classes, longest=128)
    CrossEncoder(str(folder), device="cpu", max_length=128).save_pretrained(str(folder))
    return folder


def save_classifier_over(model: Path, folder: Path, *, longest: int = 64) -> Path:
    """Write a random BERT with the word vectors and the tokenizer of a tiny encoder."""
    torch.manual_seed(0)
    words = transformer_of(load_sentence_transformer(model, "cpu")).get_input_embeddings()
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.model_max_length = longest
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=words.weight.shape[1],
        intermediate_size=2 * words.weight.shape[1],
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=longest,
        num_labels=1,
        initializer_range=0.3,
    )
    classifier = BertForSequenceClassification(config)
    classifier.get_input_embeddings().weight.data = words.weight.data
    classifier.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_own_reranker(model: Path, folder: Path, cascade: Cascade = CASCADE) -> Path:
    """Write a copy of a tiny encoder that has a random re-ranker of its own."""
    copy = Path(shutil.copytree(model, folder / "model"))
    samples = [("[O] Hello? [E] Hi [O] Where is it?", "Here it is."), ("[O] bye", "bye")]
    pack(save_classifier_over(model, folder / "classifier"), copy, cascade, samples)
    return copy
