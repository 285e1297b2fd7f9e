"""The models that read whole contexts: the pairwise model, IoI and cross-encoders.

`PairwiseModel` (`pairwise.py`) retrieves from a pool of its own vectors. `IoI` (`ioi.py`) scores
context and candidate word by word with the network of `ioi_network.py`. Both are kept in a folder
that `folder.py` describes. `CrossEncoder` (`cross_encoder.py`) is a classifier of pairs in a folder
of sentence-transformers. This package imports the modules at the root of `models` only.
"""

from pathlib import Path

from turnwise.models.encoder.torch import Precision
from turnwise.models.errors import ModelError
from turnwise.models.network_folder import reranker_kind
from turnwise.models.pairwise import PairwiseModel, dialogue_heat_map
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.ioi.model import IoI

__all__ = ["CrossEncoder", "IoI", "PairwiseModel", "dialogue_heat_map", "load", "reranker_kind"]


def load(folder: str | Path, precision: Precision = "float32") -> PairwiseModel | IoI:
    """Load the model in a folder that training wrote, of either kind.

    Args:
        folder: The best model of a `turnwise train` run.
        precision: Precision of a pairwise model's encoder; an IoI network computes in float32.

    Raises:
        ModelError: The folder holds no re-ranker, or a broken one.
    """
    kind = reranker_kind(folder)
    if kind is None:
        raise ModelError(f"'{folder}' holds neither a pairwise model nor an IoI network")
    if kind == "ioi":
        return IoI.load(folder)
    return PairwiseModel.load(folder, precision=precision)
