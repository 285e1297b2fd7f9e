"""Next-utterance selection (CCL section 5, C3L section 5): find what was said next.

Every dialogue longer than h utterances gives a context of its first h utterances. Its candidates
are the utterances that came next in any context of this length. The "full pool" ranks against
every distinct utterance of the split instead, over all lengths together.

Every utterance is encoded once for each role and relation. The rest is one matrix product for each
length, so the time grows linearly with the size of the split.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import numpy as np

from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.metrics import (
    Indices,
    Metrics,
    Ranks,
    average_settings,
    ranks,
    retrieval_metrics,
)
from turnwise.models.evaluation.report import FULL_POOL, Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import LENGTHS, Split, make_split
from turnwise.models.evaluation.systems import (
    System,
    lexical_systems,
    retrieval_systems,
    turn_ms,
)
from turnwise.models.pairwise import PairwiseModel

BLOCK = 256
"""Contexts that are scored at once."""
TIMED_CANDIDATES = 1000
WORDS = ((1, 4), (5, 9), (10, 19), (20, None))
"""Words of utterances that share a column in a table."""


def evaluate_next_utterance(
    models: Mapping[str, UtteranceEncoder | PairwiseModel],
    dialogues: Iterable[Dialogue],
    lengths: Sequence[int] = LENGTHS,
    *,
    parts: bool = False,
) -> list[Row]:
    """Evaluate all systems of the models, after random and BM25.

    Args:
        models: The models by their names in the table.
        dialogues: The dialogues of a split.
        lengths: Lengths of contexts.
        parts: Whether to evaluate parts of the score of encoders with pairs as well.

    Returns:
        A row for each system: the metrics of `retrieval_metrics` by length and as the mean over
        lengths, the average rank by the words of the true utterance, the metrics of the full pool
        as `full_pool_METRIC`, and the median milliseconds of one more turn: to encode the texts
        that are new with it, one by one, and to score 1,000 candidates.

    Raises:
        TurnwiseError: No dialogue is longer than the shortest context.
    """
    split = make_split(dialogues, lengths)
    result = [_measure(system.name, system, split) for system in lexical_systems(split)]
    for label, model in models.items():
        systems = retrieval_systems(model, split, parts=parts)
        result += [_measure(f"{label} · {system.name}", system, split) for system in systems]
    return result


def measure_in_full_pool(system: System, split: Split) -> Metrics:
    """Return the retrieval metrics against the whole pool, over all contexts together."""
    contexts = np.arange(len(split.contexts))
    pool = np.arange(len(split.pool))
    metrics = retrieval_metrics(_rank_true(system, contexts, pool, split.true), len(pool))
    return {f"{FULL_POOL}{name}": value for name, value in metrics.items()}


def _measure(name: str, system: System, split: Split) -> Row:
    of_true = ranks_among_length(system, split)
    metrics = measure_by_length(of_true, split) | _measure_by_words(of_true, split)
    metrics |= measure_in_full_pool(system, split)
    outcomes = Outcomes(of_true.expected, split.lengths.astype(str), split.dialogues)
    return Row(name, metrics, turn_ms(system, split, TIMED_CANDIDATES), outcomes)


def ranks_among_length(system: System, split: Split) -> Ranks:
    """Return the rank (N,) of each target among the targets of contexts of equal length."""
    groups = [np.flatnonzero(split.lengths == h) for h in np.unique(split.lengths)]
    of_true = Ranks.join(
        _rank_true(system, contexts, split.true[contexts], np.arange(len(contexts)))
        for contexts in groups
    )
    return of_true[np.argsort(np.concatenate(groups))]


def measure_by_length(of_true: Ranks, split: Split) -> Metrics:
    """Return the retrieval metrics, mean over lengths and `METRIC/h=LENGTH`.

    Args:
        of_true: (N,) ranks among the contexts of equal length.
        split: The N contexts.
    """
    lengths, counts = np.unique(split.lengths, return_counts=True)
    return average_settings(
        {
            f"h={h}": retrieval_metrics(of_true[split.lengths == h], count)
            for h, count in zip(lengths, counts, strict=True)
        }
    )


def _measure_by_words(of_true: Ranks, split: Split) -> Metrics:
    """Return the average rank of the true utterances of each span of words."""
    words = np.array([len(context.target.text.split()) for context in split.contexts])
    spans = {
        f"{least}-{most}" if most else f"{least}+": (least <= words) & (words <= (most or np.inf))
        for least, most in WORDS
    }
    return {
        f"average_rank/words={name}": float(of_true.expected[inside].mean())
        for name, inside in spans.items()
        if inside.any()
    }


def _rank_true(system: System, contexts: Indices, candidates: Indices, true: Indices) -> Ranks:
    # Scoring each text once makes equal texts exact ties, whatever the order of a product's sums.
    texts, column = np.unique(candidates, return_inverse=True)
    blocks = np.array_split(np.arange(len(contexts)), ceil(len(contexts) / BLOCK))
    return Ranks.join(
        ranks(system.scores(contexts[block], texts)[:, column], true[block]) for block in blocks
    )
