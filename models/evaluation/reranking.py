"""Systems beside the encoders' own: pairwise retrieval, re-rankers, and re-ranked short lists."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.metrics import Places, Scores
from turnwise.models.evaluation.split import Context, Split
from turnwise.models.evaluation.systems import System, encoder_systems, linear, recommended
from turnwise.models.rerankers import PairwiseModel
from turnwise.models.scores import Aggregation

SHORT_LIST = 100
"""Candidates that are re-ranked, the best of a first system, as the service does by default."""


class Scorer(Protocol):
    """A model that reads the context with each candidate: IoI, or a cross-encoder."""

    @property
    def name(self) -> str:
        """As the table shows it."""

    def scores(self, context: Sequence[str], candidates: Sequence[str]) -> Scores:
        """Return (C,), higher is better."""


def pairwise_system(model: PairwiseModel, split: Split) -> System:
    """Return the pairwise model as a system; a turn embeds the newest utterance alone."""
    said = dict.fromkeys(text for context in split.contexts for text in context.texts)
    place = {text: number for number, text in enumerate(said)}
    embedded = model.embed(list(said))

    def history(context: Context) -> Float32:
        return embedded[[place[text] for text in context.texts]]

    def turn(number: int) -> Float32:
        context = split.contexts[number]
        newest = model.embed(context.texts[-1:])
        return model.contexts(np.concatenate([history(context)[:-1], newest]))

    queries = np.stack([model.contexts(history(context)) for context in split.contexts])
    return linear("pairwise", queries, model.encode_responses(split.pool), turn)


def retrieval_systems(model: UtteranceEncoder | PairwiseModel, split: Split) -> list[System]:
    """Return all systems of a model whose vectors of candidates are known beforehand."""
    if isinstance(model, PairwiseModel):
        return [pairwise_system(model, split)]
    return encoder_systems(model, split)


def scorer_system(scorer: Scorer, split: Split) -> System:
    """Return a model that reads the context anew with each candidate as a system."""

    def scores(contexts: Places, candidates: Places) -> Scores:
        texts = [split.pool[place] for place in candidates]
        histories = (split.contexts[place].texts for place in contexts)
        return np.stack([scorer.scores(history, texts) for history in histories])

    return System(scorer.name, scores, lambda _: None)


def reranked(first: System, second: System, short_list: int = SHORT_LIST) -> System:
    """Return a system that puts the short list of a first one into the order of a second one.

    The best `short_list` candidates of the first system are scored by the second alone; the rest
    stays behind, as the first ranks it.
    """

    def scores(contexts: Places, candidates: Places) -> Scores:
        by_first = first.scores(contexts, candidates)
        return np.stack(
            [one(c, candidates, row) for c, row in zip(contexts, by_first, strict=True)]
        )

    def one(context: np.intp, candidates: Places, by_first: Scores) -> Scores:
        short = np.argsort(-by_first, kind="stable")[:short_list]
        by_second = second.scores(np.array([context]), candidates[short])[0]
        final: Scores = by_first - by_first[short].min() + by_second.min() - 1
        final[short] = by_second
        return final

    return System(f"{first.name} + {second.name}", scores, first.turn)


def retriever(systems: Sequence[System], aggregation: Aggregation) -> System:
    """Return the system of a triple encoder that finds the short list: the running query's.

    It sums the rows that the model card recommends, or else all of them: MaxSim has no query.
    """
    return recommended(systems, Aggregation() if aggregation.name == "max_sim" else aggregation)
