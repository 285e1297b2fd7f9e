"""The cascade: the model's own re-ranker reads the first hits where the first one is not sure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from tests.unit.selection.pool import ArrayPool, make_context
from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration
from turnwise.models.fusion import Fusion
from turnwise.models.rerankers.cascade import (
    Cascade,
    RerankedCalibration,
    combine_scores,
    reranked_features,
    standardise_scores,
)
from turnwise.models.rerankers.pairs import Pair, PairReranker, PairTokens
from turnwise.models.scores import Aggregation
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.errors import Overloaded
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Candidate
from turnwise.service.selection.confidence import Confidence
from turnwise.service.selection.pipeline import Pipeline, Selection
from turnwise.service.selection.repeats import NO_REPEATS
from turnwise.service.selection.request import Options, SelectionRequest
from turnwise.service.selection.reranking import Reranking
from turnwise.service.wire.pools import PoolCalibration, PoolSettings

pytestmark = pytest.mark.anyio

TEXTS = ["a" * (1 + index * 7 % 40) for index in range(40)]
CONTEXT = make_context(3)
IN_DOUBT = Calibration(0, 0, 0, 0, 0, offset=-1.0)
AFTER = RerankedCalibration(before=0.5, logit=0.1, margin=0.2, stayed=0.3, offset=0.4)
CASCADE = Cascade(candidates=4, weight=0.5, below=0.9, confidence=AFTER)
FUSION = Fusion(example=9.0, height=0.0, offset=0.0, softness=0.5)
AUTO = Options(Aggregation("mean"), where=None, repeat=True, rerank="auto")
NEVER = replace(AUTO, rerank=None)


class Longest(PairReranker):
    """Prefers long candidates; keeps the pairs that it read."""

    name = "longest"
    runtime = "none"

    def __init__(self) -> None:
        super().__init__(marked=True)
        self.read: list[Pair] = []

    def tokenize(self, pairs: Sequence[Pair]) -> list[PairTokens]:
        self.read += pairs
        return [PairTokens([0] * len(candidate), []) for _, candidate in pairs]

    def forward(self, tokens: list[PairTokens]) -> Float32:
        return np.array([[len(each) / 10] for each in tokens], np.float32)


class DirectQueue:
    """Runs every pair at once."""

    async def score(
        self, model: PairReranker, pairs: Sequence[Pair], timeout: float, priority: Priority
    ) -> Float32:
        return model.forward(model.tokenize(pairs))[:, 0]


class FullQueue:
    async def score(self, *_: object) -> Float32:
        raise Overloaded("300 texts wait for the encoder already")


def make_pipeline(
    reranker: PairReranker | None = None,
    calibration: Calibration | None = IN_DOUBT,
    queue: DirectQueue | FullQueue | None = None,
) -> Pipeline:
    own = (reranker, CASCADE) if reranker else None
    line = cast(EncoderQueue, queue or DirectQueue())
    reranking = Reranking(None, own, line, Metrics(), short_list=100, timeout=1.0)
    confidence = Confidence(calibration, None, Aggregation("mean"), lambda _: True)
    return Pipeline(reranking, None, confidence, FUSION)


async def select(
    pipeline: Pipeline,
    options: Options = AUTO,
    pool: ArrayPool | None = None,
    *,
    top_k: int = 6,
    min_confidence: float | None = None,
) -> Selection:
    timings = Timings(Metrics(), "encode", "retrieve", "rerank")
    request = SelectionRequest(pool or ArrayPool.of(TEXTS), CONTEXT, NO_REPEATS, options, timings)
    return await pipeline.select(request, top_k=top_k, min_confidence=min_confidence)


async def test_the_first_hits_are_ordered_by_logit_and_score_and_the_others_follow() -> None:
    pool = ArrayPool.of(TEXTS)
    before = await select(make_pipeline(), pool=pool)
    reranker = Longest()
    after = await select(make_pipeline(reranker), pool=pool)
    assert (before.cascade, after.cascade) == (None, "reranked")
    hits = await pool.search(CONTEXT.query(Aggregation("mean")), 6)
    spread = await pool.spread(CONTEXT.query(Aggregation("mean")))
    z = standardise_scores(np.array([hit.score for hit in hits]), spread)
    logits = np.array([len(hit.candidate.text) / 10 for hit in hits[:4]])
    combined = combine_scores(logits, z, 0.5)
    order = np.argsort(-combined, kind="stable")
    assert [each.id for each in after.candidates] == [hits[i].candidate.id for i in order]
    assert [each.score for each in after.candidates] == pytest.approx(combined[order], abs=1e-5)
    assert [each.id for each in after.candidates[4:]] == [each.id for each in before.candidates[4:]]
    said = "[O] utterance 0 [E] utterance 1 [O] utterance 2"
    assert reranker.read == [(said, hit.candidate.text) for hit in hits[:4]]


async def test_the_confidence_is_computed_again_and_then_corrected() -> None:
    pool = ArrayPool.of(TEXTS)
    plain = await select(make_pipeline(Longest()), pool=pool)
    first, second = plain.candidates[:2]
    hits = await pool.search(CONTEXT.query(Aggregation("mean")), 1)
    before = IN_DOUBT.confidence(np.zeros(5))
    features = reranked_features(
        before,
        len(first.text) / 10,
        first.score - second.score,
        stayed=first.id == hits[0].candidate.id,
    )
    assert plain.confidence == pytest.approx(float(AFTER.confidence(features)), abs=1e-5)
    pool.settings = PoolSettings(calibration=PoolCalibration(slope=1.0, offset=-1.0))
    corrected = await select(make_pipeline(Longest()), pool=pool)
    assert plain.confidence is not None
    logit = np.log(plain.confidence / (1 - plain.confidence))
    assert corrected.confidence == pytest.approx(1 / (1 + np.exp(1 - logit)), abs=1e-5)


async def test_the_least_confidence_applies_after_re_ranking() -> None:
    assert (await select(make_pipeline(), min_confidence=0.5)).abstained
    selection = await select(make_pipeline(Longest()), min_confidence=0.5)
    assert not selection.abstained
    assert (await select(make_pipeline(Longest()), min_confidence=0.99)).cascade == "reranked"


async def test_as_many_hits_are_read_as_the_cascade_says_even_for_one_candidate() -> None:
    reranker = Longest()
    wide = await select(make_pipeline(Longest()))
    narrow = await select(make_pipeline(reranker), top_k=1)
    assert len(reranker.read) == 4
    assert narrow.candidates == wide.candidates[:1]
    assert narrow.confidence == pytest.approx(wide.confidence)


SURE = Calibration(0, 0, 0, 0, 0, offset=5.0)


@pytest.mark.parametrize(
    ("options", "calibration"),
    [
        (AUTO, SURE),
        (NEVER, IN_DOUBT),
        (AUTO, None),
        (replace(AUTO, explain=True), IN_DOUBT),
        (replace(AUTO, aggregation=Aggregation("max_sim")), IN_DOUBT),
    ],
)
async def test_nothing_is_read_where_the_first_stage_is_sure_or_auto_does_not_apply(
    options: Options, calibration: Calibration | None
) -> None:
    reranker = Longest()
    got = await select(make_pipeline(reranker, calibration), options)
    assert got == await select(make_pipeline(None, calibration), replace(options, rerank=None))
    assert not reranker.read


async def test_without_a_re_ranker_auto_is_the_first_stage() -> None:
    pool = ArrayPool.of(TEXTS)
    auto = await select(make_pipeline(), pool=pool)
    assert auto == await select(make_pipeline(), NEVER, pool)
    assert pool.searched[0] == pool.searched[1]


async def test_a_re_ranker_that_is_overloaded_fails_no_turn() -> None:
    failed = await select(make_pipeline(Longest(), queue=FullQueue()))
    assert failed.cascade == "failed"
    assert failed._replace(cascade=None) == await select(make_pipeline())


async def test_a_candidate_that_an_example_found_stays_first() -> None:
    pool = ArrayPool.of(TEXTS)
    assert CONTEXT.said is not None
    pool.examples["c0"] = CONTEXT.said[None]
    reranker = Longest()
    selection = await select(make_pipeline(reranker), pool=pool)
    assert selection.candidates[0].matched
    assert selection.cascade is None
    assert not reranker.read


async def test_the_best_wording_of_a_group_is_chosen_after_re_ranking() -> None:
    pool = ArrayPool.of(TEXTS)
    pool.candidates = [Candidate.of(text, f"c{i}", group="one") for i, text in enumerate(TEXTS)]
    (best,) = (await select(make_pipeline(Longest()), pool=pool)).candidates
    single = await select(make_pipeline(Longest()))
    assert best.id == single.candidates[0].id
