"""Re-rankers: models that go beside, or deeper than, the triple encoder.

`PairwiseModel` is an alternative retriever, whose vectors fit a pool; `IoI` scores a short list.
"""

from pathlib import Path

from turnwise.models.encoder import Precision
from turnwise.models.errors import ModelError
from turnwise.models.rerankers.folder import reranker_kind
from turnwise.models.rerankers.ioi import IoI
from turnwise.models.rerankers.pairwise import PairwiseModel, dialogue_heat_map

__all__ = ["IoI", "PairwiseModel", "dialogue_heat_map", "load", "reranker_kind"]


def load(
    folder: str | Path, device: str | None = None, precision: Precision = "float32"
) -> PairwiseModel | IoI:
    """Load a re-ranker of whichever kind the folder holds.

    Args:
        folder: What `turnwise train` left as the best model.
        device: A torch device; without one a GPU where there is one, else the CPU.
        precision: Arithmetic of a pairwise model's encoder. An IoI network computes in float32.

    Raises:
        ModelError: The folder holds none, or a broken one.
    """
    kind = reranker_kind(folder)
    if kind is None:
        raise ModelError(f"'{folder}' holds neither a pairwise model nor an IoI network")
    if kind == "ioi":
        return IoI.load(folder, device)
    return PairwiseModel.load(folder, device, precision=precision)
