"""The folder of a trained re-ranker: sizes as JSON and weights as safetensors, without pickle.

reranker.json         {"kind", "sizes": {...}, "trained": the recipe}
reranker.safetensors  the weights
encoder/              (pairwise) a sentence-transformers folder
words.json            (ioi) the vocabulary, most frequent word first
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from turnwise.models.card import RERANKER_CARD, RerankerKind, reranker_kind
from turnwise.models.errors import ModelError
from turnwise.models.model_files import UNREADABLE, check_weights

WEIGHTS = "reranker.safetensors"


def save_reranker(
    folder: Path,
    kind: RerankerKind,
    network: nn.Module,
    sizes: Mapping[str, Any],
    trained: object = None,
) -> None:
    """Write the parts that both kinds have: the card, and the weights as float32.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.float().contiguous() for name, value in network.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    card = {"kind": kind, "sizes": dict(sizes), "trained": trained}
    (folder / RERANKER_CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


def read_sizes(folder: Path, kind: RerankerKind) -> dict[str, Any]:
    """Return the sizes of a network of a kind.

    Raises:
        ModelError: The folder holds no such re-ranker.
    """
    if reranker_kind(folder) != kind:
        raise ModelError(f"'{folder}' holds no {kind} re-ranker")
    card = json.loads((folder / RERANKER_CARD).read_text(encoding="utf-8"))
    if not isinstance(card.get("sizes"), dict):
        raise ModelError(f"'{folder}': {RERANKER_CARD} names no sizes")
    return dict(card["sizes"])


def load_weights(network: nn.Module, folder: Path) -> None:
    """Fill a network with a folder's weights.

    Raises:
        ModelError: The weights are missing, broken, or of other sizes.
    """
    check_weights(folder, folder)
    try:
        network.load_state_dict(load_file(folder / WEIGHTS))
    except UNREADABLE as error:
        raise ModelError(f"'{folder}': {WEIGHTS} cannot be loaded: {error}") from error
