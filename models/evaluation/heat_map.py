"""A dialogue's conversational similarity as a picture, in which its stages can be seen."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from turnwise.models.arrays import Float32
from turnwise.models.plots import literal

LABEL = 40
"""Characters of an utterance that are shown."""
INCHES = 0.28
"""Side of the picture that each named utterance takes."""
NAMED = 100
"""Utterances that are named at most: of more, every second or third, and so on."""


def draw_heat_map(similarity: Float32, texts: Sequence[str], path: Path) -> None:
    """Draw a square of similarities between the utterances of a dialogue as a PNG.

    Args:
        similarity: (n, n), as `models.rerankers.dialogue_heat_map` gives it.
        texts: n utterances.
        path: Where to; its folder is made if need be.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, which scoring needs not

    named = range(0, len(texts), -(-len(texts) // NAMED))
    side = 4 + INCHES * len(named)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(similarity, cmap="viridis")
    labels = [f"{place + 1}  {_short(texts[place])}" for place in named]
    axes.set_yticks(named, labels, fontsize=8)
    axes.set_xticks(named, [str(place + 1) for place in named], fontsize=8)
    axes.set(ylabel="context up to this utterance", xlabel="response")
    figure.colorbar(image, label="cosine", shrink=0.7)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # An emoji, or a letter of an alphabet, that the font lacks is shown as a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(path, dpi=120)


def _short(text: str) -> str:
    return literal(text if len(text) <= LABEL else text[: LABEL - 1] + "…")
