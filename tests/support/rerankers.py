"""Tiny untrained re-rankers, made by code."""

from pathlib import Path

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerBase,
)

from turnwise.models.network_folder import save_reranker
from turnwise.models.pairwise import ENCODER, Projectors
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.rerankers.ioi.network import InteractionNetwork, Sizes
from turnwise.models.rerankers.ioi.vocabulary import Vocabulary

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
