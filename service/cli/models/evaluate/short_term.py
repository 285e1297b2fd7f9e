"""`turnwise evaluate short-term`."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import name_files
from turnwise.models.evaluation.language_model import sampled_replies
from turnwise.models.evaluation.short_term import (
    ShortTermExample,
    evaluate_short_term,
    make_examples,
    read_examples,
    retrieved_replies,
    texts_of_examples,
)
from turnwise.models.evaluation.truncation import warn_of_long_dialogues, warn_of_truncation
from turnwise.models.text_files import write_jsonl
from turnwise.service.cli.models.evaluate.loading import find_retriever, load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files
from turnwise.service.cli.progress import SystemProgress


class Making(NamedTuple):
    """How examples are made of dialogues; the fields are options of the command."""

    form: DialogueFormat
    retriever: str | None
    generator: str | None
    history: list[int]
    distance: list[int]


def measure(
    data: list[Path] | None,
    candidates: Path | None,
    making: Making,
    compared: Compared,
    *,
    save_candidates: Path | None,
    out: Path | None,
    limit: int | None,
) -> None:
    """Find the reply that leads to a goal some turns ahead."""
    if (data is None) == (candidates is None):
        raise typer.BadParameter("give either --data or --candidates")
    if candidates and (making.generator or making.retriever):
        raise typer.BadParameter("--candidates takes no --generator and no --retriever")
    encoders = load_encoders(compared)
    note = ""
    if candidates:
        examples = read_examples(candidates, limit)
        warn_of_truncation(encoders, texts_of_examples(examples, str(candidates)))
    else:
        examples, note = _make_examples(data or [], making, compared, encoders, limit)
    if save_candidates:
        write_jsonl(save_candidates, map(asdict, examples))
    rows = evaluate_short_term(encoders, examples)
    report("short-term", [candidates] if candidates else data or [], rows, out, note)


def _make_examples(
    data: list[Path],
    making: Making,
    compared: Compared,
    encoders: Mapping[str, UtteranceEncoder],
    limit: int | None,
) -> tuple[list[ShortTermExample], str]:
    """Return examples of dialogues, and a note that says where their candidates come from."""
    dialogues = read_files(data, limit, making.form)
    warn_of_long_dialogues(encoders, data, dialogues, making.history)
    if making.generator:
        note = f"Candidates were sampled from {making.generator}."
        propose = sampled_replies(making.generator)
    else:
        retriever = making.retriever or find_retriever()
        note = f"Candidates were retrieved by {retriever}."
        known = encoders.get("base") if retriever == compared.base else None
        encoder = known or UtteranceEncoder(retriever, precision=compared.precision)
        propose = retrieved_replies(encoder, dialogues, making.history)
    with name_files(data), SystemProgress() as bar:
        progress = partial(bar, "finding candidates")
        examples = make_examples(dialogues, making.history, making.distance, propose, progress)
    return examples, note
