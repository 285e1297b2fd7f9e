"""`turnwise evaluate`: measure models, a command for each task."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from turnwise.models.data import write_jsonl
from turnwise.models.errors import DataError, naming
from turnwise.service.cli.models.best_worst import best_worst
from turnwise.service.cli.models.compared_models import (
    BASE,
    Arithmetic,
    Base,
    Models,
    find_retriever,
    load_by_name,
    load_encoders,
    load_encoders_and_pairwise,
    load_encoders_and_rerankers,
)
from turnwise.service.cli.options import (
    DATA_HELP,
    RUNS,
    Data,
    Limit,
    ManyValues,
    Written,
    check_drawable,
    check_writable,
    read,
)
from turnwise.service.cli.progress import SystemProgress

if TYPE_CHECKING:  # torch takes seconds to load; `--help` must not wait for it
    from turnwise.models.data import Dialogue
    from turnwise.models.encoder.torch import UtteranceEncoder
    from turnwise.models.evaluation.ranking import Model
    from turnwise.models.evaluation.report import Row
    from turnwise.models.pairwise import PairwiseModel

evaluate = typer.Typer(help="Measure models.", no_args_is_help=True)

JsonLines = Annotated[
    list[Path],
    typer.Option("--data", help="Files (.jsonl; .gz, .xz), read as one.", metavar="FILE ..."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results.", show_default="runs/evaluate-TASK", callback=check_drawable
    ),
]

_SETTINGS = ["2,2,0", "2,2,1", "2,2,2"]
_HISTORIES = [2, 5, 10]
_DISTANCES = [1, 2, 3, 4]
_SIZES = [20, 1_000, 100_000]
_EXAMPLES = [0, 1, 3, 5]


@evaluate.command("next-utterance", cls=ManyValues)
def next_utterance(
    *,
    data: Data,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Find the true next utterance after 2 to 10 others; --model takes pairwise models too."""
    from turnwise.models.evaluation.next_utterance import (  # noqa: PLC0415 - loads torch
        evaluate_next_utterance,
    )
    from turnwise.models.evaluation.split import LENGTHS  # noqa: PLC0415

    dialogues = read(data, limit)
    models = load_encoders_and_pairwise(model, base, precision)
    _warn_of_long_texts(models, data, dialogues, LENGTHS)
    with naming(data):
        rows = evaluate_next_utterance(models, dialogues)
    report("next-utterance", data, rows, out)


@evaluate.command("short-term", cls=ManyValues)
def short_term(
    *,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help=DATA_HELP, metavar="FILE ...")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="File of examples with their candidates, instead of --data.")
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option(
            help="Encoder that retrieves hard negatives as candidates; its own rows are at a "
            "disadvantage. By default the default of --base, or the shipped model without it.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = None,
    generator: Annotated[
        str | None,
        typer.Option(
            help="Causal language model that samples the candidates, instead of hard negatives.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = None,
    save_candidates: Annotated[
        Path | None,
        typer.Option(
            help="File to write the examples to, for --candidates.", callback=check_writable
        ),
    ] = None,
    history: Annotated[list[int], typer.Option(min=1, help="Lengths of contexts.")] = _HISTORIES,
    distance: Annotated[list[int], typer.Option(min=1, help="Goal distances.")] = _DISTANCES,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Find the reply that leads to a goal some turns ahead."""
    from turnwise.models.encoder.torch import UtteranceEncoder  # noqa: PLC0415 - loads torch
    from turnwise.models.evaluation import short_term as task  # noqa: PLC0415
    from turnwise.models.evaluation.language_model import sampled_replies  # noqa: PLC0415
    from turnwise.models.evaluation.truncation import warn_of_truncation  # noqa: PLC0415

    if (data is None) == (candidates is None):
        raise typer.BadParameter("give either --data or --candidates")
    if candidates and (generator or retriever):
        raise typer.BadParameter("--candidates takes no --generator and no --retriever")
    loaded = load_encoders(model, base, precision)
    note = ""
    if candidates:
        examples = task.read_examples(candidates, limit)
        warn_of_truncation(loaded, task.texts_of_examples(examples, str(candidates)))
    else:
        dialogues = read(data or [], limit)
        _warn_of_long_texts(loaded, data or [], dialogues, history)
        if generator:
            note = f"Candidates were sampled from {generator}."
            propose = sampled_replies(generator)
        else:
            retriever = retriever or find_retriever()
            note = f"Candidates were retrieved by {retriever}."
            known = loaded.get("base") if retriever == base else None
            encoder = known or UtteranceEncoder(retriever, precision=precision)
            propose = task.retrieved_replies(encoder, dialogues, history)
        with naming(data or []), SystemProgress() as bar:
            progress = partial(bar, "finding candidates")
            examples = task.make_examples(dialogues, history, distance, propose, progress)
    if save_candidates:
        write_jsonl(save_candidates, map(asdict, examples))
    rows = task.evaluate_short_term(loaded, examples)
    report("short-term", [candidates] if candidates else data or [], rows, out, note)


@evaluate.command("long-term", cls=ManyValues)
def long_term(
    *,
    data: Data,
    setting: Annotated[
        list[str],
        typer.Option(
            help="Length of the context, goal distance, utterances before the first goal."
        ),
    ] = _SETTINGS,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Put three goals into the order in which the dialogue reached them."""
    from turnwise.models.evaluation import long_term as task  # noqa: PLC0415 - loads torch

    settings = [task.Setting(*_read_whole_numbers(text)) for text in setting]
    dialogues = read(data, limit)
    with naming(data):
        goal_sets = task.make_goal_sets(dialogues, settings)
    loaded = load_encoders(model, base, precision)
    _warn_of_long_texts(loaded, data, dialogues, {each.context for each in settings})
    rows = task.evaluate_long_term(loaded, goal_sets)
    counts = Counter(str(goals.setting) for goals in goal_sets)
    note = "Sets of goals: " + ", ".join(f"{n} ({each})" for each, n in counts.items()) + "."
    report("long-term", data, rows, out, note)


def _read_whole_numbers(text: str) -> tuple[int, int, int]:
    try:
        context, distance, first_in = map(int, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not three whole numbers, such as 2,2,0") from None
    if context < 1 or distance < 1 or first_in < 0:
        raise typer.BadParameter(f"'{text}': context and distance start at 1, the last at 0")
    return context, distance, first_in


@evaluate.command("ranking", cls=ManyValues)
def ranking(
    *,
    data: JsonLines,
    model: Models = None,
    cross_encoder: Annotated[
        list[str] | None,
        typer.Option(help="Cross-encoders: folders or hub names.", metavar="FOLDER_OR_NAME ..."),
    ] = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Rank the candidates of R10 files; --model takes re-rankers' folders too."""
    from turnwise.models.evaluation import ranking as task  # noqa: PLC0415 - loads torch
    from turnwise.models.rerankers.cross_encoder import CrossEncoder  # noqa: PLC0415

    examples = task.read_ranking(data, limit)
    if examples.dropped:
        typer.echo(
            f"dropped {len(examples.dropped)} contexts, the first at {examples.dropped[0]}: all "
            "candidates are right, or none",
            err=True,
        )
    models: dict[str, Model] = {**load_encoders_and_rerankers(model, base, precision)}
    models |= load_by_name(cross_encoder or [], CrossEncoder, models)
    with SystemProgress() as progress:
        rows = list(task.evaluate_ranking(models, examples, progress))
    report("ranking", data, rows, out)


@evaluate.command("journal", cls=ManyValues)
def journal(
    *,
    data: JsonLines,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Rank what people were shown (files of `turnwise journal export`): does their choice win?"""
    from turnwise.models.evaluation.journal import as_offered, read_choices  # noqa: PLC0415
    from turnwise.models.evaluation.ranking import evaluate_ranking  # noqa: PLC0415 - loads torch

    choices = read_choices(data, limit)
    models = load_encoders_and_rerankers(model, base, precision)
    with SystemProgress() as progress:
        rows = list(evaluate_ranking({**models}, choices, progress, [as_offered(choices)]))
    report("journal", data, rows, out)


class Negatives(StrEnum):  # typer takes no list of a Literal
    """Sources of wrong candidates."""

    RANDOM = "random"
    BM25 = "bm25"
    SAME_DIALOGUE = "same-dialogue"


_RANDOM = [Negatives.RANDOM]


@evaluate.command("build-ranking", cls=ManyValues)
def build_ranking(
    *,
    data: Data,
    out: Written,
    negatives: Annotated[
        list[Negatives], typer.Option(help="Sources of wrong candidates, in equal parts.")
    ] = _RANDOM,
    candidates: Annotated[
        int, typer.Option(min=2, help="Candidates for each context, including the right one.")
    ] = 10,
    replies: Annotated[int, typer.Option(min=1, help="Replies drawn from a dialogue.")] = 1,
    history: Annotated[int, typer.Option(min=1, help="Fewest utterances before a reply.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    limit: Limit = None,
) -> None:
    """Make an R10 file from dialogues: the true reply among wrong ones."""
    from turnwise.models.evaluation import ranking as task  # noqa: PLC0415 - loads torch

    how = task.Building(
        sources=tuple(source.value for source in negatives),
        candidates=candidates,
        replies=replies,
        context=history,
        seed=seed,
    )
    dialogues = read(data, limit)
    with naming(data):
        total = len(task.draw_replies(dialogues, how))
        examples = track(task.build_ranking(dialogues, how), "building", total, transient=True)
        count = write_jsonl(out, map(asdict, examples))
    typer.echo(f"{count} contexts written to {out}")


@evaluate.command("confidence", cls=ManyValues)
def confidence(
    *,
    data: Data,
    pool: Annotated[
        list[Path] | None,
        typer.Option(help="Files of dialogues whose texts fill large pools.", metavar="FILE ..."),
    ] = None,
    size: Annotated[list[int], typer.Option(min=2, help="Sizes of pools.")] = _SIZES,
    contexts: Annotated[int, typer.Option(min=1, help="Approximate number of contexts.")] = 2_000,
    model: Models = None,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Compare the confidence of first candidates with how often they are the true reply."""
    from turnwise.models.evaluation import confidence as task  # noqa: PLC0415 - loads torch

    dialogues = read(data, limit)
    models = load_encoders(model, "", precision)
    more = task.texts_of(read(pool or []))
    with naming(data):
        rows = list(task.evaluate_confidence(models, dialogues, more, size, contexts))
    note = "Half of the pools have the true reply, the others the same candidates without it."
    report("confidence", [*data, *(pool or [])], rows, out, note)


@evaluate.command("answers", cls=ManyValues)
def answers(
    *,
    data: JsonLines,
    outside: Annotated[
        list[Path] | None,
        typer.Option(help="Files of questions that no answer fits.", metavar="FILE ..."),
    ] = None,
    examples: Annotated[list[int], typer.Option(min=0, help="Examples of an answer.")] = _EXAMPLES,
    covered: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the answers that have examples.")
    ] = 1.0,
    model: Models = None,
    out: Out = None,
    precision: Arithmetic = "float32",
) -> None:
    """Find the answer to a question when other phrasings of it are examples of the answer."""
    from turnwise.models.evaluation import answers as task  # noqa: PLC0415 - loads torch

    pool = task.read_answers(data)
    questions = task.read_questions(outside or [])
    models = load_encoders(model, "", precision)
    with naming(data):
        rows = list(task.evaluate_answers(models, pool, questions, examples, covered))
    note = (
        f"{len(pool)} answers, {len(questions)} questions outside, {task.DRAWS} draws of examples."
    )
    report("answers", [*data, *(outside or [])], rows, out, note)


@evaluate.command("similarity", cls=ManyValues)
def similarity(
    *,
    data: JsonLines,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Compare sentences, alone and in context, and correlate with people's scores."""
    from turnwise.models.evaluation import similarity as task  # noqa: PLC0415 - loads torch
    from turnwise.models.evaluation.truncation import warn_of_truncation  # noqa: PLC0415

    pairs = task.read_pairs(data, limit)
    with naming(data):
        task.check_scores(pairs)
    loaded = load_encoders_and_pairwise(model, base, precision)
    warn_of_truncation(loaded, task.texts_of_examples(pairs))
    report("similarity", data, list(task.evaluate_similarity(loaded, pairs)), out)


@evaluate.command("multiple-choice", cls=ManyValues)
def multiple_choice(
    *,
    data: JsonLines,
    model: Models = None,
    language_model: Annotated[
        list[str] | None,
        typer.Option(
            help="Causal language models to evaluate as well.", metavar="FOLDER_OR_NAME ..."
        ),
    ] = None,
    language: Annotated[Literal["en", "de"], typer.Option(help="Language of the prompts.")] = "en",
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Choose which text is most similar to the last turn."""
    from turnwise.models.evaluation import similarity as task  # noqa: PLC0415 - loads torch
    from turnwise.models.evaluation.language_model import LanguageModel  # noqa: PLC0415
    from turnwise.models.evaluation.truncation import warn_of_truncation  # noqa: PLC0415

    questions = task.read_questions(data, limit)
    loaded = load_encoders_and_pairwise(model, base, precision)
    asked = load_by_name(language_model or [], LanguageModel, loaded)
    warn_of_truncation(loaded, task.texts_of_examples(questions))
    rows = chain(
        task.evaluate_choices(loaded, questions),
        task.evaluate_language_models(asked, questions, language),
    )
    report("multiple-choice", data, list(rows), out)


evaluate.add_typer(best_worst, name="best-worst")


@evaluate.command("heat-map", cls=ManyValues)
def heat_map(
    *,
    data: Data,
    model: Annotated[Path, typer.Option(help="Folder of a pairwise model.")],
    dialogue: Annotated[
        list[str] | None, typer.Option(help="Ids of dialogues; by default the first one.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures.", callback=check_drawable)
    ] = Path("runs/heat-maps"),
) -> None:
    """Draw how well each utterance of a dialogue follows each of its contexts."""
    from turnwise.models.evaluation.report import draw_heat_map  # noqa: PLC0415 - loads torch
    from turnwise.models.pairwise import PairwiseModel, dialogue_heat_map  # noqa: PLC0415

    dialogues = {each.id: each for each in read(data, None if dialogue else 1)}
    if not dialogues:
        raise DataError("no dialogue in it", ", ".join(map(str, data)))
    chosen = dialogue or list(dialogues)
    if missing := [name for name in chosen if name not in dialogues]:
        raise typer.BadParameter(f"no dialogue '{missing[0]}' in the data")
    pairwise = PairwiseModel.load(model)
    for name in chosen:
        texts = [said.text for said in dialogues[name].utterances]
        file = name.replace("%", "%25").replace("/", "%2F")  # each id gets a file of its own
        path = out / f"{file}.png"
        draw_heat_map(dialogue_heat_map(pairwise, texts), texts, path)
        typer.echo(f"written to {path}")


def _warn_of_long_texts(
    models: "Mapping[str, UtteranceEncoder | PairwiseModel]",
    files: Iterable[Path],
    dialogues: "list[Dialogue]",
    lengths: Iterable[int],
) -> None:
    """Warn about the utterances, and the contexts of these lengths, that models truncate."""
    from turnwise.models.evaluation import truncation  # noqa: PLC0415

    file = ", ".join(map(str, files))
    contexts = truncation.contexts_of(dialogues, lengths, file)
    truncation.warn_of_truncation(models, truncation.utterances_of(dialogues, file), contexts)


_WIDE = 160


def report(
    task: str, data: Iterable[Path], rows: "list[Row]", out: Path | None, note: str = ""
) -> None:
    """Write a task's results and print its tables; a note says how the examples were made."""
    from turnwise.models.evaluation.report import Report  # noqa: PLC0415

    folder = out or RUNS / f"evaluate-{task}"
    results = Report(task, tuple(map(str, data)), tuple(rows), note)
    results.write(folder)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)  # a file or a pipe does not wrap lines
    for table in results.overall():
        shown = Table(title=table.title, title_justify="left", box=SIMPLE_HEAD)
        shown.caption, shown.caption_justify = table.note or None, "left"
        for index, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if index else "left")
        for cells in table.rows:
            shown.add_row(*map(escape, cells))
        console.print(shown)
    typer.echo(f"written to {folder}")
