"""Warns, before a run, of inputs that a model will truncate; each warning names the first."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.rerankers.ioi.vocabulary import has_more_words
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText

T = TypeVar("T", str, tuple[str, str])

Model = UtteranceEncoder | PairwiseModel | IoI
Located = Iterable[tuple[str, str]]
"""Texts, each with its location: file, line and field, or file and dialogue."""

_log = logging.getLogger("turnwise.evaluation")


def warn_of_truncation(models: Mapping[str, Model], texts: Located, contexts: Located = ()) -> None:
    """Warn of texts that are longer, with their prefix, than models read.

    Args:
        models: The models by their names in the table.
        texts: Utterances, candidates, goals.
        contexts: Whole contexts as one text, which plain encoders read too.
    """
    where = first_locations(texts)
    whole = first_locations(contexts)
    for label, model in models.items():
        _warn(label, model, where)
        if isinstance(model, UtteranceEncoder) and model.kind is EncoderKind.SINGLE:
            _warn(f"{label} · whole history", model, whole)


def warn_of_long_dialogues(
    models: Mapping[str, Model],
    files: Iterable[str | Path],
    dialogues: Sequence[Dialogue],
    lengths: Iterable[int],
) -> None:
    """Warn of utterances, and of contexts of these lengths, that are longer than models read.

    Args:
        models: The models by their names in the table.
        files: The files of the dialogues, which the warnings name.
        dialogues: The dialogues.
        lengths: Numbers of utterances.
    """
    file = ", ".join(map(str, files))
    contexts = contexts_of(dialogues, lengths, file)
    warn_of_truncation(models, utterances_of(dialogues, file), contexts)


def utterances_of(dialogues: Iterable[Dialogue], file: str) -> Iterator[tuple[str, str]]:
    """Yield the utterances of dialogues with their locations."""
    for dialogue in dialogues:
        for number, said in enumerate(dialogue.utterances, start=1):
            yield said.text, f'{file}, dialogue "{dialogue.id}", utterance {number}'


def contexts_of(
    dialogues: Iterable[Dialogue], lengths: Iterable[int], file: str
) -> Iterator[tuple[str, str]]:
    """Yield the contexts of these lengths, each as one text, with their locations."""
    for dialogue in dialogues:
        texts = [said.text for said in dialogue.utterances]
        for length in lengths:
            if len(texts) > length:
                location = f'{file}, dialogue "{dialogue.id}", first {length} utterances'
                yield " ".join(texts[:length]), location


def first_locations(located: Iterable[tuple[T, str]]) -> dict[T, str]:
    """Return the first location of each distinct text, or pair of texts."""
    first: dict[T, str] = {}
    for text, location in located:
        first.setdefault(text, location)
    return first


def warn_of_cut(label: str, over: Sequence[int], where: Sequence[str]) -> None:
    """Warn that a model cuts some inputs, if there are any."""
    if over:
        message = "%s: longer than %s reads, and cut, as are %d of %d in all"
        _log.warning(message, where[over[0]], label, len(over), len(where))


def _warn(label: str, model: Model, where: Mapping[str, str]) -> None:
    over = [index for index, text in enumerate(where) if _is_truncated(model, text)]
    warn_of_cut(label, over, list(where.values()))


def _is_truncated(model: Model, text: str) -> bool:
    if isinstance(model, IoI):
        return has_more_words(model.network.sizes.words, text)
    # A pairwise model reads all texts as candidates.
    role = Role.AFTER if isinstance(model, PairwiseModel) else Role.SECOND
    encoder = model.encoder if isinstance(model, PairwiseModel) else model
    return encoder.is_too_long(RoleText(text, role, Relation.OTHER))
