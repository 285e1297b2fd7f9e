"""Confidence: how often the first candidate is right, and whether the confidence says so.

Each utterance of a dialogue after the first is a reply to those before it. Pools of several sizes
are drawn for it, each once with the reply and once without it, so that in half of the pools no
candidate is right. A first candidate is right if it is the reply, word for word.

A pool takes texts of the same dialogues, and other texts only where these are too few. It has no
text of the context, since the service does not offer what the responder has said.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64
from turnwise.models.confidence import Calibration, Moments, Spread, features
from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError, TurnwiseError
from turnwise.models.evaluation.metrics import (
    Indices,
    Mask,
    Metrics,
    auroc,
    calibration_error,
    median_ms,
    risks,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.split import Context, Split, encode_split, split_of
from turnwise.models.roles import Role

SIZES = (20, 1_000, 100_000)
CONTEXTS = 2_000
"""Contexts to measure, about: whole dialogues are drawn until there are this many."""
COVERAGES = range(10, 101, 10)
"""The risk is reported for these percentages of the answers, the most confident ones."""
_BLOCK = 64
"""Contexts that are scored against all texts at once."""


@dataclass(frozen=True, slots=True, eq=False)
class FirstCandidates:
    """The first candidates that n searches found.

    Attributes:
        features: (n, k) as `models.confidence.features` returns them.
        right: (n,) whether the first candidate is the reply.
        size: (n,) number of candidates of the pool.
        has_reply: (n,) whether the pool has the reply.
        dialogue: (n,) number of the dialogue.
    """

    features: Float64
    right: Mask
    size: Indices
    has_reply: Mask
    dialogue: Indices

    def __getitem__(self, chosen: Mask) -> Self:
        return type(self)(*(getattr(self, each.name)[chosen] for each in fields(self)))

    @classmethod
    def join(cls, parts: Sequence["FirstCandidates"]) -> "FirstCandidates":
        """Return the answers of all parts; different parts have different dialogues."""
        return cls(**concatenate_fields(parts))


def concatenate_fields(parts: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return each field of some dataclasses of arrays, one part after the other.

    Each part numbers its dialogues from 0. The numbers in the result's `dialogue` differ among the
    parts.
    """
    together = {
        each.name: np.concatenate([getattr(part, each.name) for part in parts])
        for each in fields(parts[0])
    }
    first_numbers = np.cumsum([0, *(1 + part.dialogue.max() for part in parts[:-1])])
    together["dialogue"] += np.repeat(first_numbers, [len(part.dialogue) for part in parts])
    return together


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The candidates that one search scores.

    Attributes:
        context: The index of the context.
        candidates: (C,) their indices; the reply is the last one, if it is among them.
        scores: (C,) their scores.
        norm: Length of the query.
        utterances: Number of utterances of the context.
        has_reply: Whether the reply is among them.
    """

    context: int
    candidates: Indices
    scores: Float64
    norm: float
    utterances: int
    has_reply: bool

    @property
    def is_right(self) -> bool:
        """Whether the reply has the best score; a tie is wrong."""
        return self.has_reply and bool(self.scores[-1] > self.scores[:-1].max())

    @property
    def spread(self) -> Spread:
        """The spread of the scores."""
        return Spread(self.scores.mean(), self.scores.std(), len(self.scores))

    @property
    def features(self) -> Float64:
        """The features of the answer, as `models.confidence.features` returns them."""
        second, first = np.partition(self.scores, -2)[-2:]
        return features(first, second, self.spread, self.norm, self.utterances)

    def rank(self, count: int) -> Indices:
        """Return the positions (k,) of the `count` best candidates, best first."""
        return np.argsort(-self.scores, kind="stable")[:count]


@dataclass(frozen=True, slots=True, eq=False)
class Searches:
    """Contexts with their queries, and the texts that pools are drawn from.

    Attributes:
        split: The N contexts; its pool begins with the texts of their dialogues.
        own: The number of those texts.
        queries: (N, d) the running query of each context.
        vectors: (pool, d) of the pool.
    """

    split: Split
    own: int
    queries: Float32
    vectors: Float32

    def run(self, sizes: Collection[int]) -> FirstCandidates:
        """Search pools of these sizes for each context, once with its reply and once without it.

        Args:
            sizes: Numbers of candidates, at least 2. A size is lowered to the largest that every
                context has texts for.

        Raises:
            TurnwiseError: There are too few texts for a pool.
        """
        dialogues = self.split.dialogues
        found = list(self.draw_pools(sizes))
        if not found:
            raise TurnwiseError("there are too few texts for a pool")
        return FirstCandidates(
            features=np.stack([pool.features for pool in found]),
            right=np.array([pool.is_right for pool in found]),
            size=np.array([len(pool.scores) for pool in found]),
            has_reply=np.array([pool.has_reply for pool in found]),
            dialogue=np.array([dialogues[pool.context] for pool in found]),
        )

    def draw_pools(self, sizes: Collection[int]) -> Iterator["Pool"]:
        """Yield the pools of `run`, with the scores of their candidates."""
        rng = np.random.default_rng(0)
        index_of = {text: index for index, text in enumerate(self.split.pool)}
        said = [
            [index_of[text] for text in {*context.texts, context.target.text}]
            for context in self.split.contexts
        ]
        largest = max(len(self.vectors) - max(map(len, said)), 2)
        sizes = sorted({min(size, largest) for size in sizes})
        for number, scores in enumerate(self._scores()):
            true = self.split.true[number]
            utterances = len(self.split.contexts[number].utterances)
            norm = float(np.linalg.norm(self.queries[number]))
            for size in sizes:
                wrong = self.draw(size, said[number], rng)
                if len(wrong) < size:
                    continue
                with_reply = np.append(wrong[: size - 1], true)
                yield Pool(number, with_reply, scores[with_reply], norm, utterances, has_reply=True)
                yield Pool(number, wrong, scores[wrong], norm, utterances, has_reply=False)

    def _scores(self) -> Iterator[Float64]:
        """Yield the scores (pool,) of each context."""
        for start in range(0, len(self.queries), _BLOCK):
            yield from (self.queries[start : start + _BLOCK] @ self.vectors.T).astype(np.float64)

    def draw(self, size: int, without: list[int], rng: np.random.Generator) -> Indices:
        """Draw `size` indices of the pool, or all, except some; the dialogues' own come first."""
        own = _draw_indices(self.own, size + len(without), rng)
        more = _draw_indices(len(self.vectors) - self.own, size + len(without) - len(own), rng)
        indices = np.concatenate([own, self.own + more])
        return indices[~np.isin(indices, without)][:size]


@dataclass(frozen=True, slots=True, eq=False)
class Bank:
    """Texts that fill pools for which the dialogues have too few, and their vectors (n, d)."""

    texts: tuple[str, ...]
    vectors: Float32

    @classmethod
    def of(cls, encoder: UtteranceEncoder, texts: Iterable[str], most: int) -> Self:
        """Encode at most `most` of the texts, drawn at random; always the same ones."""
        drawn = _shuffle(set(texts), np.random.default_rng(0))[: max(most, 0)]
        return cls(tuple(drawn), encoder.encode(drawn, Role.AFTER))


def make_searches(
    encoder: UtteranceEncoder,
    dialogues: Sequence[Dialogue],
    bank: Bank,
    *,
    contexts: int = CONTEXTS,
    largest: int = max(SIZES),
) -> Searches:
    """Draw dialogues, and encode their contexts and the texts of pools.

    Args:
        encoder: The encoder.
        dialogues: Dialogues; whole ones are drawn at random, for their contexts.
        bank: Texts that fill large pools.
        contexts: Number of contexts, about.
        largest: Size of the largest pool: texts that it cannot need are not encoded.

    Raises:
        TurnwiseError: No dialogue has two utterances.
    """
    rng = np.random.default_rng(0)
    drawn = _draw_contexts(dialogues, contexts, rng)
    if not drawn:
        raise TurnwiseError("no dialogue has two utterances")
    of_contexts = {said.text for c in drawn for said in (*c.utterances, c.target)}
    others = texts_of(dialogues) - of_contexts
    split = split_of(drawn, [*sorted(of_contexts), *_shuffle(others, rng)[:largest]])
    encoded = encode_split(encoder, split)
    queries = [
        encoder.aggregation.query(first, second)
        for first, second in zip(encoded.first, encoded.second, strict=True)
    ]
    known = set(split.pool)
    new = [index for index, text in enumerate(bank.texts) if text not in known]
    return Searches(
        split=replace(split, pool=(*split.pool, *(bank.texts[index] for index in new))),
        own=len(split.pool),
        queries=np.stack(queries),
        vectors=np.concatenate([encoded.vectors, bank.vectors[new]]),
    )


def _draw_contexts(
    dialogues: Sequence[Dialogue], least: int, rng: np.random.Generator
) -> list[Context]:
    """Return all contexts of dialogues, drawn at random until there are at least so many."""
    drawn: list[Context] = []
    for number in rng.permutation(len(dialogues)).tolist():
        if len(drawn) >= least:
            break
        said = dialogues[number].utterances
        drawn += [
            Context(said[:turn], said[turn], dialogues[number].id) for turn in range(1, len(said))
        ]
    return drawn


def texts_of(dialogues: Iterable[Dialogue]) -> set[str]:
    """Return the distinct texts of dialogues."""
    return {said.text for dialogue in dialogues for said in dialogue.utterances}


def evaluate_confidence(
    models: Mapping[str, UtteranceEncoder],
    dialogues: Sequence[Dialogue],
    more: Collection[str] = (),
    sizes: Collection[int] = SIZES,
    contexts: int = CONTEXTS,
) -> Iterator[Row]:
    """Evaluate the confidences of models.

    Args:
        models: The models by their names in the table.
        dialogues: The dialogues of a split.
        more: Texts that fill large pools.
        sizes: Sizes of pools; `Searches.run` lowers those that there are too few texts for.
        contexts: Number of contexts, about.

    Yields:
        For each model a row over all sizes, and a row a size; then the same rows for the pools that
        have the reply, and for those without it. Metrics are the share of right first candidates,
        the mean confidence, the calibration error, AUROC where some are right and some are not, the
        area under the risk-coverage curve and its points, and the milliseconds of a confidence.

    Raises:
        ModelError: A model has no calibration.
        TurnwiseError: No dialogue has two utterances.
    """
    own = texts_of(dialogues)
    most = max(sizes)
    # A pool leaves out the texts of a context and its reply.
    needed = most - len(own) + max((len(each.utterances) for each in dialogues), default=0)
    calibrations = {label: require_calibration(model, label) for label, model in models.items()}
    for label, model in models.items():
        bank = Bank.of(model, {*more} - own, needed)
        searches = make_searches(model, dialogues, bank, contexts=contexts, largest=most)
        answers = searches.run(sizes)
        ms = _time_confidence(searches, calibrations[label])
        for name, chosen in _select_answers(answers):
            metrics = confidence_metrics(calibrations[label], answers[chosen])
            yield Row(f"{label} · {name}", metrics, ms)


def require_calibration(model: UtteranceEncoder, label: str) -> Calibration:
    """Return the calibration of a model; the label names the model in an error.

    Raises:
        ModelError: It has none.
    """
    if model.calibration is None:
        raise ModelError(f"model '{label}' has no calibration: its card names none")
    return model.calibration


def confidence_metrics(calibration: Calibration, answers: FirstCandidates) -> Metrics:
    """Return the metrics that `evaluate_confidence` describes, of n ≥ 1 answers."""
    right = answers.right
    confidence = calibration.confidence(answers.features)
    curve = risks(confidence, right)
    area = auroc(confidence, right)
    metrics = {
        "right": float(right.mean()),
        "confidence": float(confidence.mean()),
        "calibration_error": calibration_error(confidence, right),
    }
    if area is not None:
        metrics["auroc"] = area
    metrics["risk"] = float(curve.mean())
    for coverage in COVERAGES:
        answered = max(len(curve) * coverage // 100, 1)
        metrics[f"risk/{coverage}%"] = float(curve[answered - 1])
    return metrics


def _select_answers(answers: FirstCandidates) -> Iterator[tuple[str, Mask]]:
    everything = np.ones_like(answers.right)
    kinds = {
        "": everything,
        ", with the reply": answers.has_reply,
        ", without it": ~answers.has_reply,
    }
    for kind, those in kinds.items():
        yield f"all sizes{kind}", those
        for size in np.unique(answers.size):
            yield f"{size:,} candidates{kind}", those & (answers.size == size)


def _time_confidence(searches: Searches, calibration: Calibration) -> float:
    """Return the median milliseconds of a confidence, without its search."""
    moments = Moments.of(searches.vectors)
    size = len(searches.vectors)

    def work(index: int) -> Float64:
        query = searches.queries[index]
        spread = moments.spread(query, size)
        norm = float(np.linalg.norm(query))
        return calibration.confidence(features(1.0, 0.5, spread, norm, 2))

    return median_ms(work, len(searches.queries))


def _draw_indices(count: int, wanted: int, rng: np.random.Generator) -> Indices:
    """Draw `wanted` of the indices 0 to count - 1, or all of them, in random order."""
    return rng.choice(count, min(wanted, count), replace=False)


def _shuffle(texts: Collection[str], rng: np.random.Generator) -> list[str]:
    ordered = sorted(texts)  # a set has another order in each process
    return [ordered[index] for index in rng.permutation(len(ordered))]
