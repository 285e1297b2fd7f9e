"""`turnwise evaluate next-utterance`."""

from turnwise.models.errors import naming
from turnwise.service.commands.evaluate.options import (
    BASE,
    Arithmetic,
    Base,
    Data,
    Limit,
    Models,
    Out,
    encoders_and_pairwise,
    read,
    report,
    warn_of_long_texts,
)


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
    models = encoders_and_pairwise(model, base, precision)
    warn_of_long_texts(models, data, dialogues, LENGTHS)
    with naming(data):
        rows = evaluate_next_utterance(models, dialogues)
    report("next-utterance", data, rows, out)
