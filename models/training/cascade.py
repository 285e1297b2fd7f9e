"""Fits the cascade: which hits a re-ranker reads, when, and how sure the answer is afterwards.

Validation dialogues are searched as for the confidence of an encoder (`calibration.py`): pools of
several sizes, each once with the true reply and once without it.
"""

import logging
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.card import locate_model
from turnwise.models.confidence import Calibration, held_out, regress
from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.confidence import (
    Bank,
    Pool,
    Searches,
    concatenate_fields,
    make_searches,
    require_calibration,
)
from turnwise.models.evaluation.metrics import Indices, Mask, auroc, calibration_error
from turnwise.models.files import replace_folder
from turnwise.models.rerankers.cascade import (
    Cascade,
    RerankedCalibration,
    combine_scores,
    reranked_features,
    standardise_scores,
)
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.pack import pack
from turnwise.models.rerankers.pairs import PairReranker
from turnwise.models.training.config import CrossEncoderConfig
from turnwise.models.training.corpora import Find, validation_dialogues

SIZES = (20, 200, 2_000)
"""Sizes of the pools."""
CONTEXTS = 120
"""Contexts of each validation file, about."""
CANDIDATES = (5, 10)
"""Numbers of hits that a re-ranker may read."""
WEIGHTS = np.arange(0, 4.01, 0.25)
"""Weights of the first stage's score that are tried."""
THRESHOLDS = np.arange(0.05, 0.501, 0.05)
"""Confidences below which a re-ranker may read the hits: above, the first is mostly right."""
TOLERANCE = 0.005
"""Loss of R@1 that counts as none. Few replies in dialogues depend on what only a re-ranker tells,
such as yes from no. So of the settings about as good, the one in which it counts most is taken."""
WORTH = 0.005
"""Gain in R@1 for which a re-ranker reads more hits."""
ABSENT = -1
"""The index of the true reply in a short list without it."""

_log = logging.getLogger("turnwise.training")


def add_reranker(trained: Path, config: CrossEncoderConfig, find: Find, folder: Path) -> None:
    """Write a model with its own re-ranker, as a service loads it, after a cross-encoder learned.

    The cascade is fitted on the validation dialogues. Without these, or where the base has no
    confidence, nothing is written.

    Args:
        trained: The cross-encoder.
        config: The run that trained it.
        find: Finds its files.
        folder: The new folder: a copy of the base, with the re-ranker in it.

    Raises:
        ModelError: The base cannot be loaded.
        OSError: The folder cannot be written.
    """
    encoder = UtteranceEncoder(config.base)
    if not config.validation.paths or encoder.calibration is None:
        what = "it needs validation files, and a base with a confidence"
        _log.warning("no cascade is fitted, so that only TURNWISE_RERANKER serves it: %s", what)
        return
    splits = list(validation_dialogues(config.validation, find, 1).values())
    reranker = CrossEncoder(trained)
    cascade = fit_cascade(read_short_lists(encoder, reranker, splits))
    if cascade is None:
        _log.warning("no cascade is fitted: the re-ranker finds no more true replies than the base")
        return
    said = [dialogue.utterances for dialogues in splits for dialogue in dialogues]
    samples = [
        reranker.pair(reranker.read_context(texts[:-1], texts[-1].speaker), texts[-1].text)
        for texts in said
        if len(texts) > 1
    ]
    with replace_folder(folder) as fresh:
        shutil.copytree(locate_model(config.base), fresh, dirs_exist_ok=True)
        pack(trained, fresh, cascade, samples)


@dataclass(frozen=True, slots=True, eq=False)
class ShortLists:
    """The first hits of n searches, and what a re-ranker says of them.

    Attributes:
        z: (n, k) standardised scores of the first stage, best first.
        logits: (n, k) of the re-ranker.
        true: (n,) index of the true reply among the hits, or `ABSENT`.
        before: (n,) confidence of the first stage in its first hit.
        has_reply: (n,) whether the pool has the true reply.
        dialogue: (n,) number of the dialogue.
    """

    z: Float64
    logits: Float64
    true: Indices
    before: Float64
    has_reply: Mask
    dialogue: Indices

    @classmethod
    def join(cls, parts: Sequence["ShortLists"]) -> "ShortLists":
        """Return the lists of all parts; different parts have different dialogues."""
        return cls(**concatenate_fields(parts))

    def first(self, candidates: int) -> Self:
        """Return the lists of the first hits alone."""
        true = np.where(self.true < candidates, self.true, ABSENT)
        return replace(
            self, z=self.z[:, :candidates], logits=self.logits[:, :candidates], true=true
        )

    def combine(self, weight: float) -> Float64:
        """Return the combined scores (n, k)."""
        rows = zip(self.logits, self.z, strict=True)
        return np.stack([combine_scores(logits, z, weight) for logits, z in rows])


def read_short_lists(
    encoder: UtteranceEncoder,
    reranker: PairReranker,
    splits: Sequence[Sequence[Dialogue]],
    contexts: int = CONTEXTS,
    sizes: Sequence[int] = SIZES,
) -> ShortLists:
    """Search pools for the contexts of several splits, and let a re-ranker read the first hits.

    Raises:
        ModelError: The encoder has no calibration.
    """
    calibration = require_calibration(encoder, encoder.name)
    nothing = Bank.of(encoder, (), 0)
    parts = []
    for dialogues in splits:
        searches = make_searches(encoder, dialogues, nothing, contexts=contexts, largest=max(sizes))
        parts.append(_read(searches, list(searches.draw_pools(sizes)), calibration, reranker))
    shortest = min(part.z.shape[1] for part in parts)  # a small split has small pools
    return ShortLists.join([part.first(shortest) for part in parts])


def _read(
    searches: Searches, pools: Sequence[Pool], calibration: Calibration, reranker: PairReranker
) -> ShortLists:
    split = searches.split
    ranked = [pool.rank(max(CANDIDATES)) for pool in pools]
    hits = [pool.candidates[best] for pool, best in zip(pools, ranked, strict=True)]
    logits = _read_hits(searches, pools, hits, reranker)
    true = np.array([split.true[pool.context] for pool in pools])
    found = np.stack(hits) == true[:, None]
    z = [
        standardise_scores(p.scores[best], p.spread) for p, best in zip(pools, ranked, strict=True)
    ]
    return ShortLists(
        z=np.stack(z),
        logits=logits,
        true=np.where(found.any(axis=1), found.argmax(axis=1), ABSENT),
        before=calibration.confidence(np.stack([pool.features for pool in pools])),
        has_reply=np.array([pool.has_reply for pool in pools]),
        dialogue=split.dialogues[[pool.context for pool in pools]],
    )


def _read_hits(
    searches: Searches, pools: Sequence[Pool], hits: Sequence[Indices], reranker: PairReranker
) -> Float64:
    """Return the logits (n, k) of the hits; those that pools of a context share are read once."""
    of_context: defaultdict[int, set[int]] = defaultdict(set)
    for pool, of_pool in zip(pools, hits, strict=True):
        of_context[pool.context].update(of_pool.tolist())
    known: dict[tuple[int, int], float] = {}
    for number, wanted in of_context.items():
        context = searches.split.contexts[number]
        said = reranker.read_context(context.utterances, context.target.speaker)
        scores = reranker.scores(said, [searches.split.pool[index] for index in wanted])
        known |= zip([(number, index) for index in wanted], scores.tolist(), strict=True)
    return np.array(
        [
            [known[pool.context, index] for index in of_pool.tolist()]
            for pool, of_pool in zip(pools, hits, strict=True)
        ]
    )


def fit_cascade(lists: ShortLists) -> Cascade | None:
    """Return the cascade with the best R@1, in which the re-ranker counts as much as it can.

    It is None if the re-ranker finds no more true replies than the first stage, or if that is sure
    of all of its answers. The figures of its confidence are cross-validated: each was fitted on
    other dialogues.
    """
    first_is_right = lists.true == 0
    few, many = CANDIDATES
    of_few = _fit_weight(lists.first(few))
    of_many = _fit_weight(lists.first(many))
    if max(of_few.recall, of_many.recall) <= _recall(first_is_right, lists):
        return None
    is_worth_many = of_many.recall - of_few.recall >= WORTH
    candidates = many if is_worth_many else few
    weight = of_many.weight if is_worth_many else of_few.weight
    reranked = _rerank(lists.first(candidates), weight)
    below = _fit_threshold(reranked)
    if lists.before.min() >= below:
        return None
    return Cascade(candidates, weight, below, _calibrate(reranked, below))


@dataclass(frozen=True, slots=True, eq=False)
class _Reranked:
    """The hits that are first after a re-ranker read the short lists.

    Attributes:
        lists: The n short lists.
        features: (n, 4) the features of the confidence in the first hit.
        is_right: (n,) whether it is the true reply.
    """

    lists: ShortLists
    features: Float64
    is_right: Mask


def _rerank(lists: ShortLists, weight: float) -> _Reranked:
    combined = lists.combine(weight)
    first = combined.argmax(axis=1)
    rows = np.arange(len(first))
    second_best = np.sort(combined, axis=1)[:, -2]
    features = reranked_features(
        before=lists.before,
        logit=lists.logits[rows, first],
        margin=combined[rows, first] - second_best,
        stayed=first == 0,
    )
    return _Reranked(lists, features, is_right=first == lists.true)


def _calibrate(reranked: _Reranked, below: float) -> RerankedCalibration:
    """Return the confidence of the answers that a re-ranker reads, with its figures."""
    lists = reranked.lists
    is_read = lists.before < below
    features = reranked.features[is_read]
    is_right = reranked.is_right[is_read]
    confidence = held_out(features, is_right, lists.dialogue[is_read])
    was_right = lists.true == 0
    figures = {
        "answers": len(is_right),
        "right_before": _recall(was_right, lists),
        "right": _recall(np.where(is_read, reranked.is_right, was_right), lists),
        "share": float(is_read.mean()),
        "calibration_error": calibration_error(confidence, is_right),
        "auroc": auroc(confidence, is_right) or np.nan,
    }
    rounded = {name: round(float(value), 4) for name, value in figures.items()}
    calibration = RerankedCalibration(*regress(features, is_right).tolist())
    return replace(calibration, fitted=rounded)


class _FittedWeight(NamedTuple):
    """A weight of the first stage's score, and the best R@1 of all weights."""

    weight: float
    recall: float


def _fit_weight(lists: ShortLists) -> _FittedWeight:
    """Return the least weight whose R@1 is about the best."""
    recalls = np.array(
        [_recall(lists.combine(weight).argmax(axis=1) == lists.true, lists) for weight in WEIGHTS]
    )
    best = recalls.max()
    least = np.flatnonzero(recalls >= best - TOLERANCE)[0]
    return _FittedWeight(float(WEIGHTS[least]), float(best))


def _fit_threshold(reranked: _Reranked) -> float:
    """Return the greatest threshold whose R@1 is about the best."""
    lists = reranked.lists
    was_right = lists.true == 0
    recalls = np.array(
        [
            _recall(np.where(lists.before < below, reranked.is_right, was_right), lists)
            for below in THRESHOLDS
        ]
    )
    greatest = np.flatnonzero(recalls >= recalls.max() - TOLERANCE)[-1]
    return round(float(THRESHOLDS[greatest]), 2)


def _recall(right: Mask, lists: ShortLists) -> float:
    """Return R@1 over the pools that have the true reply."""
    return float(right[lists.has_reply].mean())
