"""Texts longer than a model reads: said before anything runs, with the first one's place."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from models.encoder import UtteranceEncoder
from models.roles import Relation, Role, RoleText

T = TypeVar("T", str, tuple[str, str])

_log = logging.getLogger("turnwise.evaluation")


def too_long(
    tokenizer: Any,  # noqa: ANN401 - of transformers
    limit: int | None,
    texts: Sequence[str] | Sequence[tuple[str, str]],
) -> list[int]:
    """Return the places of the texts, or pairs read as one, that have more tokens than a limit."""
    if limit is None or not texts:
        return []
    encoded = tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
    return [place for place, tokens in enumerate(encoded) if len(tokens) > limit]


def first_places(places: Iterable[tuple[T, str]]) -> dict[T, str]:
    """Return from each distinct text, or pair of texts, to the place where it stands first."""
    where: dict[T, str] = {}
    for text, place in places:
        where.setdefault(text, place)
    return where


def warn_of_long_texts(label: str, encoder: UtteranceEncoder, where: Mapping[str, str]) -> None:
    """Warn of texts that an encoder cuts, prefix included.

    Args:
        label: What the encoder is called.
        encoder: The encoder.
        where: From each distinct text to the file, line and field where it stands first.
    """
    texts = [encoder.prefixed(RoleText(t, Role.SECOND, Relation.OTHER)) for t in where]
    over = too_long(encoder.model.tokenizer, encoder.model.max_seq_length, texts)
    warn_of_cut(label, over, list(where.values()))


def warn_of_cut(label: str, over: Sequence[int], where: Sequence[str]) -> None:
    """Warn that a model reads only a part of some inputs; where there are none, do nothing."""
    if over:
        _log.warning(
            "%s: longer than %s reads, and cut, as are %d of %d in all",
            where[over[0]], label, len(over), len(where),
        )  # fmt: skip
