"""`turnwise evaluate journal`."""

from turnwise.service.commands.evaluate.options import (
    BASE,
    Arithmetic,
    Base,
    JsonLines,
    Limit,
    Models,
    Out,
    encoders_and_rerankers,
    report,
)


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
    from turnwise.service.commands.progress import SystemProgress  # noqa: PLC0415

    choices = read_choices(data, limit)
    models = encoders_and_rerankers(model, base, precision)
    with SystemProgress() as progress:
        rows = list(evaluate_ranking({**models}, choices, progress, [as_offered(choices)]))
    report("journal", data, rows, out)
