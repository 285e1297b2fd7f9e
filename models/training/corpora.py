"""Where a configuration's corpora are, what they hold, and what an epoch sees of them."""

import logging
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from turnwise.models.data import Dialogue, read_dialogues
from turnwise.models.errors import DataError
from turnwise.models.training.checkpoint import Recipe
from turnwise.models.training.config import Section, Source, Validation

T = TypeVar("T")
S = TypeVar("S", bound=Source)

Find = Callable[[str], Path]
"""From a path as a configuration names it to where the file is."""

OWN_CORPORA = Path(__file__).parent / "data"
"""The folder of the corpora that were written for this project and come with it."""

_log = logging.getLogger("turnwise.training")


def finder(folders: Sequence[Path]) -> Find:
    """Return how to find a file that a configuration names.

    It is looked up as it stands, in the folders, and among the project's own corpora.
    """

    def find(name: str) -> Path:
        for path in (Path(name), *(folder / name for folder in (*folders, OWN_CORPORA))):
            if path.is_file():
                return path
        raise DataError("no such file, here or in a folder given with --data", name)

    return find


def in_place_of(named: Sequence[S], files: Sequence[Path]) -> tuple[S, ...]:
    """Return files as the corpora to train on, in place of those that a configuration names.

    One that it names itself, by the end of the path, stays what it is there, less what it leaves
    out. Warn of what is left out of a corpus that is none of the files.
    """
    for source in named:
        if source.leave_out and not any(_as_named(source, file) for file in files):
            _log.warning("%s: leaves dialogues out of %s, and none out of the files given",
                         source.leave_out, source.path)  # fmt: skip
    found = (next(filter(None, (_as_named(s, file) for s in named)), None) for file in files)
    plain = type(named[0])
    return tuple(s or plain(path=str(file)) for s, file in zip(found, files, strict=True))


def _as_named(source: S, file: Path) -> S | None:
    """Return a corpus that lies where a file does, if that is what it names; else None."""
    path, parts = file.absolute(), Path(source.path).parts
    if path.parts[-len(parts) :] != parts:
        return None
    update = {"path": str(file)}
    if source.leave_out:
        beside = Path(*path.parts[: -len(parts)], source.leave_out)
        update |= {"leave_out": str(beside)} if beside.is_file() else {}
    return source.model_copy(update=update)


def read_source(source: Source, find: Find) -> Iterator[Dialogue]:
    """Yield a corpus's dialogues, less those that must not be trained on.

    Warn of a list of these that may mean others.

    Raises:
        DataError: A file does not hold what it should, or none of those is in the corpus.
    """
    file = find(source.path)
    if not source.leave_out:
        yield from read_dialogues(file)
        return
    leaks = find(source.leave_out)
    left_out, met = read_left_out(leaks), set[str]()
    for dialogue in read_dialogues(file):
        if dialogue.id in left_out:
            met.add(dialogue.id)
        else:
            yield dialogue
    if left_out and not met:
        what = f"none of the {len(left_out)} dialogues that {leaks} lists is in it"
        raise DataError(f"{what}; without `leave_out` it is trained on whole", str(file))
    if missing := len(left_out - met):
        _log.warning("%s: %d of its %d dialogues are not in %s, which is right only if they are "
                     "of another file", leaks, missing, len(left_out), file)  # fmt: skip
    stem, txt, packed = file.name.rpartition(".txt")
    if left_out and txt and packed in ("", ".gz", ".xz"):
        _log.warning("%s: has no ids; %s must name its dialogues by their lines, the first %s-1",
                     file, leaks, stem)  # fmt: skip


def warn_of_cut_texts(
    file: str, dialogues: Iterable[Dialogue], is_truncated: Callable[[str], bool]
) -> None:
    """Warn once a file of utterances that a model reads only a part of."""
    cut = [
        f'dialogue "{dialogue.id}", utterance {number}'
        for dialogue in dialogues
        for number, said in enumerate(dialogue.utterances, 1)
        if is_truncated(said.text)
    ]
    if cut:
        _log.warning("%s, %s: longer than the model reads, and cut, as are %d utterances in all",
                     file, cut[0], len(cut))  # fmt: skip


def validation_dialogues(
    validation: Validation, find: Find, history: int
) -> dict[str, list[Dialogue]]:
    """Return the dialogues at the head of each validation file.

    Args:
        validation: The files, and how much of each.
        find: Where they are.
        history: Utterances that one dialogue at least must have before its last.

    Raises:
        DataError: A file does not hold dialogues, or none that is long enough.
    """
    files = {
        path: list(islice(read_dialogues(find(path)), validation.dialogues))
        for path in validation.paths
    }
    for path, dialogues in files.items():
        if all(len(dialogue.utterances) <= history for dialogue in dialogues):
            raise DataError(f"no dialogue in it is longer than {history}", str(find(path)))
    return files


def read_left_out(path: Path) -> set[str]:
    """Return the dialogue ids of a JSON object of lists; numbers are ids too, as in a corpus.

    Raises:
        DataError: The file holds something else.
    """
    schema = TypeAdapter(dict[str, list[str]], config=ConfigDict(coerce_numbers_to_str=True))
    try:
        lists = schema.validate_json(path.read_bytes().removeprefix(BOM_UTF8))
    except ValidationError as error:
        raise DataError("expected an object of lists of dialogue ids", str(path)) from error
    return {identifier for identifiers in lists.values() for identifier in identifiers}


def an_epoch(wanted: int | None, items: Sequence[T]) -> int:
    """Return how many items of a corpus an epoch sees."""
    return min(wanted or len(items), len(items))


def draw_epoch(corpora: Sequence[tuple[Sequence[T], int | None]], seed: int, epoch: int) -> list[T]:
    """Return what an epoch sees of each corpus and the number wanted of it; the same for a seed.

    A corpus that is sampled goes on where the last epoch stopped, in an order that is drawn
    anew for each pass.
    """
    chosen: list[T] = []
    for items, number in corpora:
        wanted = an_epoch(number, items)
        seen = range(epoch * wanted, (epoch + 1) * wanted)
        orders = {
            done: np.random.default_rng([seed, done]).permutation(len(items))
            for done in {n // len(items) for n in seen}
        }
        chosen += [items[orders[n // len(items)][n % len(items)]] for n in seen]
    return chosen


def draw_batches(
    corpora: Sequence[tuple[Sequence[T], int | None]],
    size: int,
    seed: int,
    epoch: int,
    rng: np.random.Generator,
) -> list[list[T]]:
    """Return what an epoch sees in full batches that mix the corpora."""
    chosen = draw_epoch(corpora, seed, epoch)
    size = min(size, len(chosen))
    order = rng.permutation(len(chosen))[: len(chosen) // size * size]
    return [[chosen[place] for place in places] for places in order.reshape(-1, size)]


def recipe_of(config: Section, corpora: Sequence[tuple[Sequence[object], int | None]]) -> Recipe:
    """Return what a run learns: its configuration, and how much each corpus holds.

    Of the corpora's files only the names, so that they may lie elsewhere when it is taken up.
    """
    recipe = config.model_dump(mode="json")
    for corpus in recipe["data"]:
        corpus |= {key: Path(corpus[key]).name for key in ("path", "leave_out") if corpus[key]}
    return recipe | {"items": [len(items) for items, _ in corpora]}


def count_steps(corpora: Sequence[tuple[Sequence[T], int | None]], size: int, epochs: int) -> int:
    """Return the steps of all epochs."""
    seen = sum(an_epoch(wanted, items) for items, wanted in corpora)
    return epochs * (seen // min(size, seen))
