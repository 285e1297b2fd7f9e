"""`turnwise evaluate`: measure models, a command for each task.

The commands have their options here. A module for each task does the work; it loads torch, for
which `--help` must not wait.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.service.cli.models.evaluate.best_worst import best_worst
from turnwise.service.cli.models.evaluate.options import (
    Compared,
    CrossEncoders,
    JsonLines,
    Making,
    Out,
    read_compared,
    read_making,
    read_models,
)
from turnwise.service.cli.options import (
    DATA_HELP,
    Data,
    Limit,
    ManyValues,
    Written,
    check_drawable,
    check_writable,
    read_format,
    with_options,
)

evaluate = typer.Typer(
    help="Measure models.",
    epilog="docs/papers.md has the command for each table and figure of the papers. For those that "
    "need training it is research/ablations.py.",
    no_args_is_help=True,
)

_SETTINGS = ["2,2,0", "2,2,1", "2,2,2"]
_LENGTHS = list(range(2, 11))
_SIZES = [20, 1_000, 100_000]
_EXAMPLES = [0, 1, 3, 5]


@evaluate.command("next-utterance", cls=ManyValues)
@with_options(compared=read_compared, form=read_format)
def measure_next_utterance(
    *,
    compared: Compared,
    form: DialogueFormat,
    data: Data,
    history: Annotated[list[int], typer.Option(min=1, help="Lengths of contexts.")] = _LENGTHS,
    parts: Annotated[
        bool,
        typer.Option(
            "--parts",
            help="Also measure parts of C3L's score: direct neighbours, [B1] alone or with [B2], "
            "and pairs together with single vectors.",
        ),
    ] = False,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Find the next utterance, by lengths of context and reply; --parts: C3L's Table 5.

    --model takes pairwise models too. results.md has the table of each length.
    """
    from turnwise.service.cli.models.evaluate import next_utterance as task

    task.measure(data, form, compared, lengths=history, parts=parts, out=out, limit=limit)


@evaluate.command("distances", cls=ManyValues)
@with_options(compared=read_compared, form=read_format)
def measure_distances(
    *,
    compared: Compared,
    form: DialogueFormat,
    data: Data,
    reach: Annotated[int, typer.Option(min=1, help="Greatest distance.")] = 5,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Draw how similarity falls with the distance of utterances, both ways (CCL, Figure 6)."""
    from turnwise.service.cli.models.evaluate import distances as task

    task.measure(data, form, compared, reach=reach, out=out, limit=limit)


@evaluate.command("additivity", cls=ManyValues)
@with_options(compared=read_models, form=read_format)
def measure_additivity(
    *,
    compared: Compared,
    form: DialogueFormat,
    data: Data,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Is a mixture of two utterances nearer to the next one than its parts (C3L, Table 6)?"""
    from turnwise.service.cli.models.evaluate import additivity as task

    task.measure(data, form, compared, out=out, limit=limit)


@evaluate.command("short-term", cls=ManyValues)
@with_options(making=read_making, compared=read_compared, form=read_format)
def measure_short_term(
    *,
    making: Making,
    compared: Compared,
    form: DialogueFormat,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help=DATA_HELP, metavar="FILE ...")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="File of examples with their candidates, instead of --data.")
    ] = None,
    save_candidates: Annotated[
        Path | None,
        typer.Option(
            help="File to write the examples to, for --candidates.", callback=check_writable
        ),
    ] = None,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Find the reply that leads to a goal some turns ahead."""
    from turnwise.service.cli.models.evaluate import short_term as task

    task.measure(
        data,
        candidates,
        making,
        form,
        compared,
        save_candidates=save_candidates,
        out=out,
        limit=limit,
    )


@evaluate.command("long-term", cls=ManyValues)
@with_options(compared=read_compared, form=read_format)
def measure_long_term(
    *,
    compared: Compared,
    form: DialogueFormat,
    data: Data,
    setting: Annotated[
        list[str],
        typer.Option(
            help="Length of the context, goal distance, utterances before the first goal."
        ),
    ] = _SETTINGS,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Put three goals into the order in which the dialogue reached them."""
    from turnwise.service.cli.models.evaluate import long_term as task

    task.measure(data, form, setting, compared, out=out, limit=limit)


@evaluate.command("ranking", cls=ManyValues)
@with_options(compared=read_compared)
def measure_ranking(
    *,
    compared: Compared,
    data: JsonLines,
    cross_encoder: CrossEncoders = None,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Rank the candidates of R10 or IoI's files (.tsv); --model takes re-rankers' folders too."""
    from turnwise.service.cli.models.evaluate import ranking as task

    task.measure(data, cross_encoder or [], compared, out=out, limit=limit)


@evaluate.command("pairs", cls=ManyValues)
@with_options(compared=read_compared)
def measure_pairs(
    *,
    compared: Compared,
    data: JsonLines,
    cross_encoder: CrossEncoders = None,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Choose between two replies after yes and no, with and without a negation, and so on."""
    from turnwise.service.cli.models.evaluate import pairs as task

    task.measure(data, cross_encoder or [], compared, out=out, limit=limit)


@evaluate.command("journal", cls=ManyValues)
@with_options(compared=read_compared)
def measure_journal(
    *,
    compared: Compared,
    data: JsonLines,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Rank what people were shown (files of `turnwise journal export`): does their choice win?"""
    from turnwise.service.cli.models.evaluate import ranking as task

    task.measure_journal(data, compared, out=out, limit=limit)


class Negatives(StrEnum):  # typer takes no list of a Literal
    """Sources of wrong candidates."""

    RANDOM = "random"
    BM25 = "bm25"
    SAME_DIALOGUE = "same-dialogue"


_RANDOM = [Negatives.RANDOM]


@evaluate.command("build-ranking", cls=ManyValues)
@with_options(form=read_format)
def build_ranking(
    *,
    form: DialogueFormat,
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
    from turnwise.service.cli.models.evaluate import ranking as task

    task.build(
        data,
        form,
        sources=[source.value for source in negatives],
        candidates=candidates,
        replies=replies,
        context=history,
        seed=seed,
        out=out,
        limit=limit,
    )


@evaluate.command("confidence", cls=ManyValues)
@with_options(compared=read_models, form=read_format)
def measure_confidence(
    *,
    compared: Compared,
    form: DialogueFormat,
    data: Data,
    pool: Annotated[
        list[Path] | None,
        typer.Option(help="Files of dialogues whose texts fill large pools.", metavar="FILE ..."),
    ] = None,
    size: Annotated[list[int], typer.Option(min=2, help="Sizes of pools.")] = _SIZES,
    contexts: Annotated[int, typer.Option(min=1, help="Approximate number of contexts.")] = 2_000,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Compare the confidence of first candidates with how often they are the true reply."""
    from turnwise.service.cli.models.evaluate import confidence as task

    task.measure(
        data,
        form,
        pool or [],
        compared,
        sizes=size,
        contexts=contexts,
        out=out,
        limit=limit,
    )


@evaluate.command("answers", cls=ManyValues)
@with_options(compared=read_models, form=read_format)
def measure_answers(
    *,
    compared: Compared,
    form: DialogueFormat,
    data: JsonLines,
    outside: Annotated[
        list[Path] | None,
        typer.Option(help="Files of questions that no answer fits.", metavar="FILE ..."),
    ] = None,
    dialogues: Annotated[
        list[Path] | None,
        typer.Option(help="Files of dialogues in which some replies recur.", metavar="FILE ..."),
    ] = None,
    examples: Annotated[list[int], typer.Option(min=0, help="Examples of an answer.")] = _EXAMPLES,
    covered: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the answers that have examples.")
    ] = 1.0,
    out: Out = None,
) -> None:
    """Find the answer to a question when other phrasings of it are examples of the answer.

    With --dialogues, also find replies that recur in dialogues.
    """
    from turnwise.service.cli.models.evaluate import answers as task

    task.measure(
        data,
        outside or [],
        dialogues or [],
        compared,
        form=form,
        examples=examples,
        covered=covered,
        out=out,
    )


@evaluate.command("conversational-search", cls=ManyValues)
@with_options(compared=read_models)
def measure_search(
    *,
    compared: Compared,
    data: JsonLines,
    passages: Annotated[
        list[Path],
        typer.Option(help="Files of passages, as `turnwise pool load` takes.", metavar="FILE ..."),
    ],
    utterances: Annotated[int, typer.Option(min=1, help="Newest utterances to search for.")] = 3,
    words: Annotated[
        int, typer.Option(min=1, help="First words of other speakers' utterances to search for.")
    ] = 50,
    out: Out = None,
) -> None:
    """Find the passage for a question that needs the conversation before it."""
    from turnwise.service.cli.models.evaluate import conversational_search as task

    task.measure(data, passages, compared, utterances=utterances, words=words, out=out)


@evaluate.command("similarity", cls=ManyValues)
@with_options(compared=read_compared)
def measure_similarity(
    *,
    compared: Compared,
    data: JsonLines,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Compare sentences, alone and in context, and correlate with people's scores."""
    from turnwise.service.cli.models.evaluate import similarity as task

    task.measure(data, compared, out=out, limit=limit)


@evaluate.command("multiple-choice", cls=ManyValues)
@with_options(compared=read_compared)
def measure_choices(
    *,
    compared: Compared,
    data: JsonLines,
    language_model: Annotated[
        list[str] | None,
        typer.Option(
            help="Causal language models to evaluate as well.", metavar="FOLDER_OR_NAME ..."
        ),
    ] = None,
    language: Annotated[Literal["en", "de"], typer.Option(help="Language of the prompts.")] = "en",
    prompt: Annotated[
        Literal["rephrase", "list"],
        typer.Option(
            help="Ask a language model for the turn in other words, or list the choices and ask "
            "for the most similar one, as GiCCS does."
        ),
    ] = "rephrase",
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Choose which text is most similar to the last turn."""
    from turnwise.service.cli.models.evaluate import similarity as task

    task.measure_choices(
        data,
        language_model or [],
        compared,
        language=language,
        style=prompt,
        out=out,
        limit=limit,
    )


evaluate.add_typer(best_worst, name="best-worst")


@evaluate.command("heat-map", cls=ManyValues)
@with_options(form=read_format)
def draw_heat_maps(
    *,
    form: DialogueFormat,
    data: Data,
    model: Annotated[Path, typer.Option(help="Folder of a pairwise model.")],
    id: Annotated[
        list[str] | None, typer.Option("--id", help="Ids of dialogues; by default the first one.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures.", callback=check_drawable)
    ] = Path("runs/heat-maps"),
) -> None:
    """Draw how well each utterance of a dialogue follows each of its contexts."""
    from turnwise.service.cli.models.evaluate.heat_map import draw

    draw(data, form, model, id or [], out=out)
