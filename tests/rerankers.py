"""Tiny untrained re-rankers, made by code."""

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer

from turnwise.models.rerankers.folder import save_reranker
from turnwise.models.rerankers.ioi import IoI
from turnwise.models.rerankers.ioi_network import InteractionNetwork, Sizes
from turnwise.models.rerankers.pairwise import ENCODER, Projectors
from turnwise.models.rerankers.vocabulary import Vocabulary

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
