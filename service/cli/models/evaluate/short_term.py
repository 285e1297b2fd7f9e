"""`turnwise evaluate short-term`."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer

from turnwise.models.data import Dialogue
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
from turnwise.service.cli.models.evaluate.options import Compared, Making
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files
from turnwise.service.cli.progress import SystemProgress


def measure(
    data: list[Path] | None,
    candidates: Path | None,
    making: Making,
    form: DialogueFormat,
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
        dialogues = read_files(data or [], limit, form)
        examples, note = _make_examples(data or [], dialogues, making, compared, encoders)
    if save_candidates:
        write_jsonl(save_candidates, map(asdict, examples))
    rows = evaluate_short_term(encoders, examples)
    report("short-term", [candidates] if candidates else data or [], rows, out, note)


def _make_examples(
    data: list[Path],
    dialogues: list[Dialogue],
    making: Making,
    compared: Compared,
    encoders: Mapping[str, UtteranceEncoder],
) -> tuple[list[ShortTermExample], str]:
    """Return examples of dialogues, and a note that says where their candidates come from."""
    warn_of_long_dialogues(encoders, data, dialogues, making.histories)
    if making.generator:
        note = f"Candidates were sampled from {making.generator}."
        propose = sampled_replies(making.generator)
    else:
        retriever = making.retriever or find_retriever()
        note = f"Candidates were retrieved by {retriever}."
        known = encoders.get("base") if retriever == compared.base else None
        encoder = known or UtteranceEncoder(retriever, precision=compared.precision)
        propose = retrieved_replies(encoder, dialogues, making.histories)
    with name_files(data), SystemProgress() as bar:
        progress = partial(bar, "finding candidates")
        examples = make_examples(dialogues, making.histories, making.distances, propose, progress)
    return examples, note
