"""Finds and reads the corpora of a recipe, and draws what each epoch sees of them."""

import logging
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from turnwise.models.data import Dialogue, read_records
from turnwise.models.dialogue_files import DialogueFormat, read_dialogues
from turnwise.models.errors import DataError
from turnwise.models.evaluation.split import Context
from turnwise.models.evaluation.truncation import utterances_of, warn_of_cut
from turnwise.models.texts import write_count
from turnwise.models.training.config import (
    CorpusSource,
    PairCorpus,
    UtteranceCorpus,
    Validation,
    WindowCorpus,
)
from turnwise.models.training.losses import NLI_LABELS
from turnwise.models.training.translations import Translation
from turnwise.models.training.windows import Window, windows_of

T = TypeVar("T")
S = TypeVar("S", bound=CorpusSource)

Find = Callable[[str], Path]
"""Return the file that a configuration names by a path."""

Corpora = Sequence[tuple[Sequence[T], int | None]]
"""The items of each corpus, and how many of them an epoch sees; None for all."""

Validating = Collection[tuple[str, ...]]
"""The texts of the validation dialogues. A dialogue with the same texts is not trained on."""

OWN_CORPORA = Path(__file__).parent / "data"
"""The folder of the corpora that were written for this project and come with it."""

_log = logging.getLogger("turnwise.training")


def finder(folders: Sequence[Path]) -> Find:
    """Return a function that finds the file that a configuration names by a path.

    It looks up the path as given, then in the folders, then among the project's own corpora.
    """

    def find(name: str) -> Path:
        for path in (Path(name), *(folder / name for folder in (*folders, OWN_CORPORA))):
            if path.is_file():
                return path
        raise DataError("no such file, here or in a folder given with --data", name)

    return find


def replace_corpora(
    named: Sequence[S], files: Sequence[Path], form: DialogueFormat | None = None
) -> tuple[S, ...]:
    """Return files as the corpora to train on, instead of those that a configuration names.

    A file whose path ends with a path of the configuration keeps that corpus's settings, such as
    `leave_out`. A warning names a `leave_out` that applies to none of the files.

    Args:
        named: The corpora of the configuration.
        files: The files.
        form: The format of all of the files, if it is not the usual one.
    """
    for source in named:
        if source.leave_out and not any(_as_named(source, file) for file in files):
            message = "%s: lists dialogues of %s, which was not given; no dialogue is left out"
            _log.warning(message, source.leave_out, source.path)
    update = {"format": form} if form and form != DialogueFormat() else {}
    corpora: list[S] = []
    for file in files:
        matches = [match for source in named if (match := _as_named(source, file))]
        corpus = matches[0] if matches else type(named[0])(path=str(file))
        corpora.append(corpus.model_copy(update=update))
    return tuple(corpora)


def _as_named(source: S, file: Path) -> S | None:
    """Return a corpus with a file's path, if the file's path ends with the corpus's; else None."""
    path = file.absolute()
    parts = Path(source.path).parts
    if path.parts[-len(parts) :] != parts:
        return None
    update = {"path": str(file)}
    if source.leave_out:
        leave_out = Path(*path.parts[: -len(parts)], source.leave_out)
        if leave_out.is_file():
            update["leave_out"] = str(leave_out)
    return source.model_copy(update=update)


def read_source(
    source: CorpusSource, find: Find, validating: Validating = frozenset()
) -> Iterator[Dialogue]:
    """Yield a corpus's dialogues without those that must not be trained on.

    Warn where the list of these does not seem to be made for this file.

    Raises:
        DataError: A file is malformed, no dialogue of the list is in the corpus, or no dialogue is
            left.
    """
    is_empty = True
    for dialogue in islice(_leave_out_listed(source, find), source.skip, None):
        if dialogue.texts not in validating:
            is_empty = False
            yield dialogue
    if is_empty:
        what = "has no dialogue to train on: all are left out or validate"
        if next(read_dialogues(find(source.path), source.format), None) is None:
            what = "has no dialogue"
        raise DataError(what, str(find(source.path)))


def read_distinct_texts(source: UtteranceCorpus, find: Find, validating: Validating) -> list[str]:
    """Return the distinct texts of a corpus, those of its speaker alone if it names one.

    Raises:
        DataError: As `read_source`, or its speaker says nothing.
    """
    texts: dict[str, None] = {}
    for dialogue in read_source(source, find, validating):
        for utterance in dialogue.utterances:
            if source.speaker in (None, utterance.speaker):
                texts[utterance.text] = None
    if not texts:
        raise DataError(f"has no utterance by '{source.speaker}'", str(find(source.path)))
    return list(texts)


def _leave_out_listed(source: CorpusSource, find: Find) -> Iterator[Dialogue]:
    """Yield a corpus's dialogues without those that its list leaves out."""
    file = find(source.path)
    if not source.leave_out:
        yield from read_dialogues(file, source.format)
        return
    leaks = find(source.leave_out)
    left_out = read_left_out(leaks)
    met = set[str]()
    for dialogue in read_dialogues(file, source.format):
        if dialogue.id in left_out:
            met.add(dialogue.id)
        else:
            yield dialogue
    if left_out and not met:
        what = f"holds none of the {write_count(len(left_out), 'dialogue')} that {leaks} lists"
        raise DataError(f"{what}; to train on all of it, delete `leave_out`", str(file))
    if missing := len(left_out - met):
        message = "%s: %d of its %d dialogues are not in %s; was the list made for this file?"
        _log.warning(message, leaks, missing, len(left_out), file)
    stem, txt, packed = file.name.rpartition(".txt")
    if left_out and txt and packed in ("", ".gz", ".xz"):
        message = "%s: has no ids; %s must name its dialogues by line number, the first %s-1"
        _log.warning(message, file, leaks, stem)


def warn_of_cut_texts(
    file: str, dialogues: Iterable[Dialogue], is_truncated: Callable[[str], bool]
) -> None:
    """Warn, once for a file, of utterances that are longer than the model reads."""
    said = list(utterances_of(dialogues, file))
    over = [number for number, (text, _) in enumerate(said) if is_truncated(text)]
    warn_of_cut("the model", over, [location for _, location in said])


def validation_dialogues(
    validation: Validation, find: Find, context: int
) -> dict[str, list[Dialogue]]:
    """Return dialogues drawn at random from each validation file, always the same ones.

    The first dialogues of a file may be of one domain, so they would not do.

    Args:
        validation: The files, and how much of each.
        find: Finds them.
        context: Utterances that at least one dialogue must have before its last.

    Raises:
        DataError: A file is malformed, or no dialogue of it is long enough.
    """
    files = {
        path: _draw_dialogues(
            list(read_dialogues(find(path), validation.format)), validation.dialogues
        )
        for path in validation.paths
    }
    for path, dialogues in files.items():
        if all(len(dialogue.utterances) <= context for dialogue in dialogues):
            raise DataError(
                f"has no dialogue of more than {write_count(context, 'utterance')}", str(find(path))
            )
    return files


def validation_texts(validation: Validation, find: Find) -> Validating:
    """Return the texts of the dialogues that `validation_dialogues` draws."""
    files = validation_dialogues(validation, find, 0)
    return frozenset(d.texts for d in chain.from_iterable(files.values()))


def _draw_dialogues(dialogues: list[Dialogue], number: int) -> list[Dialogue]:
    size = min(number, len(dialogues))
    indices = np.random.default_rng(0).choice(len(dialogues), size, replace=False)
    return [dialogues[index] for index in sorted(indices)]


def read_left_out(path: Path) -> set[str]:
    """Return the dialogue ids of a JSON object of lists; numbers become texts, as in a corpus.

    Raises:
        DataError: The file is something else.
    """
    schema = TypeAdapter(dict[str, list[str]], config=ConfigDict(coerce_numbers_to_str=True))
    try:
        lists = schema.validate_json(path.read_bytes().removeprefix(BOM_UTF8))
    except ValidationError as error:
        raise DataError("expected an object of lists of dialogue ids", str(path)) from error
    return {identifier for identifiers in lists.values() for identifier in identifiers}


def read_windows(
    corpus: WindowCorpus, find: Find, validating: Validating = frozenset()
) -> list[Window]:
    """Return all windows of a corpus.

    Raises:
        DataError: The file is malformed, or nobody answers anybody in it.
    """
    dialogues = read_source(corpus, find, validating)
    windows = [window for dialogue in dialogues for window in windows_of(dialogue)]
    if not windows:
        raise DataError("has no dialogue with an answer to learn from", str(find(corpus.path)))
    return windows


def read_pairs(
    corpus: PairCorpus,
    find: Find,
    turns: int,
    is_truncated: Callable[[str], bool],
    validating: Validating = frozenset(),
) -> list[Context]:
    """Return all pairs of a context and a response of a corpus; warn of texts that are cut.

    Args:
        corpus: The corpus.
        find: Finds its files.
        turns: Utterances of a context at most.
        is_truncated: Whether a text is longer than the model reads.
        validating: The texts of the validation dialogues.

    Raises:
        DataError: The file is malformed, or all its responses are the same.
    """
    dialogues = list(read_source(corpus, find, validating))
    warn_of_cut_texts(str(find(corpus.path)), dialogues, is_truncated)
    pairs = [pair for dialogue in dialogues for pair in pairs_of(dialogue, turns)]
    if len({pair.target.text for pair in pairs}) < 2:
        raise DataError("has no two different responses", str(find(corpus.path)))
    return pairs


@dataclass(frozen=True, slots=True)
class NliPair:
    """A premise, a hypothesis, and the index of its label in `NLI_LABELS`."""

    premise: str
    hypothesis: str
    label: int


def read_nli(path: Path) -> Iterator[NliPair]:
    """Yield the pairs of a JSONL file of premise, hypothesis and label.

    Raises:
        DataError: There is no line, a line lacks a field, or a label is none of the three.
    """
    record = None
    for record in read_records(path):
        label = record.text("label")
        if label not in NLI_LABELS:
            raise record.error("label", f"must be one of {', '.join(NLI_LABELS)}")
        yield NliPair(record.text("premise"), record.text("hypothesis"), NLI_LABELS.index(label))
    if record is None:
        raise DataError("has no pair", str(path))


def read_translations(path: Path) -> list[Translation]:
    """Return the pairs of a JSONL file of source and target.

    Raises:
        DataError: There is no line, or a line lacks a field.
    """
    pairs = [Translation(r.text("source"), r.text("target")) for r in read_records(path)]
    if not pairs:
        raise DataError("has no pair", str(path))
    return pairs


def draw_epoch(corpora: Corpora[T], seed: int, epoch: int) -> list[T]:
    """Return the items that an epoch sees; the same for the same seed.

    A corpus that is sampled continues where the last epoch stopped. Each pass through it has an
    order of its own.
    """
    chosen: list[T] = []
    for items, most in corpora:
        wanted = min(most or len(items), len(items))
        positions = range(epoch * wanted, (epoch + 1) * wanted)  # counted over all passes
        orders = {
            number_of_pass: np.random.default_rng([seed, number_of_pass]).permutation(len(items))
            for number_of_pass in {position // len(items) for position in positions}
        }
        for position in positions:
            number_of_pass, index = divmod(position, len(items))
            chosen.append(items[orders[number_of_pass][index]])
    return chosen


def draw_batches(
    corpora: Corpora[T], size: int, seed: int, epoch: int, rng: np.random.Generator
) -> list[list[T]]:
    """Return the items that an epoch sees, in full batches that mix the corpora."""
    chosen = draw_epoch(corpora, seed, epoch)
    size = min(size, len(chosen))
    order = rng.permutation(len(chosen))[: len(chosen) // size * size]
    return [[chosen[index] for index in indices] for indices in order.reshape(-1, size)]


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the generator that draws an epoch's batches; no step has the same seed."""
    return np.random.default_rng([seed, 2**32 - 1, epoch])


def pairs_of(dialogue: Dialogue, turns: int) -> list[Context]:
    """Return each utterance but the first with its context of at most `turns` utterances."""
    said = dialogue.utterances
    return [Context(said[max(0, t - turns) : t], said[t]) for t in range(1, len(said))]
