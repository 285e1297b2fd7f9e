from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from tests.unit.selection.pool import ArrayPool, make_context, random_units, score_naively
from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration
from turnwise.models.diversity import most_diverse
from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.fusion import Fusion
from turnwise.models.scores import Aggregation, max_sim
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Candidate, Filter
from turnwise.service.selection.confidence import Confidence
from turnwise.service.selection.context import EncodedContext
from turnwise.service.selection.followers import FOLLOWER_BONUS
from turnwise.service.selection.pipeline import Pipeline, Selection
from turnwise.service.selection.repeats import NO_REPEATS, Repeats
from turnwise.service.selection.request import Options, SelectionRequest
from turnwise.service.selection.reranking import Reranking, ShortList
from turnwise.service.selection.retrieval import NEAR
from turnwise.service.sessions.turns import Turn
from turnwise.service.wire.fields import RerankerName
from turnwise.service.wire.pools import Matched, PoolSettings

pytestmark = pytest.mark.anyio

TEXTS = [f"reply {index}" for index in range(40)]
CERTAIN = Calibration(0, 0, 0, 0, 0, offset=20.0)
IN_DOUBT = Calibration(0, 0, 0, 0, 0, offset=-20.0)
WITH_EXAMPLES = ExampleCalibration(logit=1, cosine=0, without=-60, offset=0)
FUSION = Fusion(example=3.0, height=1.0, offset=-3.0, softness=0.5)
MEAN = Options(Aggregation("mean"), where=None, repeat=False)


class Longest(Reranking):
    """Prefers long texts."""

    def __init__(self, short_list: int) -> None:
        no_queue = cast(EncoderQueue, None)
        super().__init__(None, None, no_queue, Metrics(), short_list=short_list, timeout=1.0)

    async def score(self, name: RerankerName, short_list: ShortList, timings: Timings) -> Float32:
        return np.array([len(text) for text in short_list.candidates], np.float32)


def make_pipeline(calibration: Calibration | None = None, short_list: int = 100) -> Pipeline:
    confidence = Confidence(calibration, WITH_EXAMPLES, Aggregation("mean"), lambda _: True)
    return Pipeline(Longest(short_list), None, confidence, FUSION)


async def select(
    pool: ArrayPool,
    context: EncodedContext,
    options: Options = MEAN,
    *,
    repeats: Repeats = NO_REPEATS,
    top_k: int = 5,
    min_confidence: float | None = None,
    pipeline: Pipeline | None = None,
) -> Selection:
    timings = Timings(Metrics(), "encode", "retrieve", "rerank")
    request = SelectionRequest(pool, context, repeats, options, timings)
    return await (pipeline or make_pipeline()).select(
        request, top_k=top_k, min_confidence=min_confidence
    )


@pytest.mark.parametrize("last_rows", [None, 1, 2, 5])
async def test_candidates_are_those_with_the_best_sums_over_pairs(last_rows: int | None) -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(6)
    aggregation = Aggregation("last_rows", last_rows) if last_rows else Aggregation("mean")
    chosen = (await select(pool, context, replace(MEAN, aggregation=aggregation))).candidates
    naive = score_naively(context, pool.after, last_rows)
    best = np.argsort(-naive)[:5]
    assert [each.id for each in chosen] == [f"c{index}" for index in best]
    assert [each.score for each in chosen] == pytest.approx(naive[best], abs=1e-5)


async def test_maxsim_orders_the_short_list_of_the_mean() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(4)
    options = replace(MEAN, aggregation=Aggregation("max_sim"))
    pipeline = make_pipeline(short_list=10)
    chosen = (await select(pool, context, options, pipeline=pipeline)).candidates
    short = np.argsort(-score_naively(context, pool.after))[:10]
    scores = max_sim(context.first, context.second, pool.after[short])
    best = np.argsort(-scores)[:5]
    assert [each.id for each in chosen] == [f"c{short[index]}" for index in best]
    assert [each.score for each in chosen] == pytest.approx(scores[best], abs=1e-6)


async def test_maxsim_scores_fewer_candidates_after_a_long_context() -> None:
    pool = ArrayPool.of(TEXTS)
    options = replace(MEAN, aggregation=Aggregation("max_sim"))
    await select(pool, make_context(300), options, pipeline=make_pipeline(short_list=30))
    assert pool.searched == [(1 << 21) // 300**2]


@pytest.mark.parametrize("name", ["mean", "last_rows", "max_sim"])
async def test_contributions_add_up_to_the_score(name: str) -> None:
    context = make_context(5)
    options = replace(MEAN, aggregation=Aggregation(name), explain=True)  # type: ignore[arg-type]
    for each in (await select(ArrayPool.of(TEXTS), context, options)).candidates:
        assert each.contributions is not None
        assert len(each.contributions) == 5
        assert sum(each.contributions) == pytest.approx(each.score, abs=1e-5)


async def test_a_re_ranker_orders_the_short_list() -> None:
    pool = ArrayPool.of(["x" * index for index in range(1, 41)])
    context = make_context(3)
    options = replace(MEAN, rerank="ioi")
    pipeline = make_pipeline(short_list=8)
    chosen = (await select(pool, context, options, top_k=3, pipeline=pipeline)).candidates
    short = np.argsort(-score_naively(context, pool.after))[:8]
    assert [len(each.text) for each in chosen] == sorted(short + 1, reverse=True)[:3]


async def test_diversity_chooses_from_the_short_list() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    options = replace(MEAN, diversity=0.7)
    pipeline = make_pipeline(short_list=12)
    chosen = (await select(pool, context, options, pipeline=pipeline)).candidates
    naive = score_naively(context, pool.after)
    short = np.argsort(-naive)[:12]
    best = most_diverse(naive[short], pool.after[short], 0.7, 5)
    assert [each.id for each in chosen] == [f"c{short[index]}" for index in best]


async def test_excluded_and_said_candidates_take_no_place_of_others() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    before = (await select(pool, context, top_k=40)).candidates
    repeats = Repeats(frozenset(each.text for each in before[1:12]), NO_REPEATS.after)
    options = replace(MEAN, exclude=frozenset({before[0].id, "unknown"}))
    chosen = (await select(pool, context, options, repeats=repeats)).candidates
    assert [each.id for each in chosen] == [each.id for each in before[12:17]]


async def test_candidates_near_to_what_was_said_are_left_out() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    repeats = Repeats(frozenset({"anything"}), random_units(3, seed=9))
    pool.after[:2] = repeats.after[:2]
    chosen = (await select(pool, context, repeats=repeats, top_k=40)).candidates
    nearest = (pool.after @ repeats.after.T).max(axis=1)
    far = {f"c{index}" for index in np.flatnonzero(nearest < NEAR)}
    assert {each.id for each in chosen} == far == {f"c{index}" for index in range(2, 40)}


async def test_only_candidates_that_match_the_filter_are_offered() -> None:
    pool = ArrayPool.of(TEXTS)
    pool.candidates = [
        Candidate.of(candidate.text, candidate.id, {"odd": index % 2 == 1})
        for index, candidate in enumerate(pool.candidates)
    ]
    options = replace(MEAN, where=Filter.of({"odd": True}))
    chosen = (await select(pool, make_context(2), options, top_k=40)).candidates
    assert len(chosen) == 20
    assert all(each.metadata["odd"] for each in chosen)


async def test_a_confidence_compares_the_first_with_another_text() -> None:
    copies = ArrayPool.of(["same"] * 30 + ["other"])
    copies.after[:30] = copies.after[0]
    calibration = Calibration(0, 1, 0, 0, 0, offset=0)
    context = make_context(2)
    selection = await select(copies, context, pipeline=make_pipeline(calibration))
    assert {each.text for each in selection.candidates} == {"same"}
    assert selection.confidence is not None
    assert selection.confidence > 0.5  # by the margin to the other text
    assert copies.searched[-1] > 30


@pytest.mark.parametrize(
    ("confidence", "asked", "of_pool", "abstains"),
    [
        (0, None, None, False),
        (0, 0.5, None, True),
        (0, None, 0.5, True),
        (0, 0.0, 0.5, False),
        (1, 0.9, None, False),
    ],
)
async def test_a_selection_below_the_least_confidence_abstains(
    confidence: int, asked: float | None, of_pool: float | None, abstains: bool
) -> None:
    pool = ArrayPool.of(TEXTS)
    pool.settings = PoolSettings(min_confidence=of_pool)
    pipeline = make_pipeline(CERTAIN if confidence else IN_DOUBT)
    selection = await select(pool, make_context(2), min_confidence=asked, pipeline=pipeline)
    assert selection.abstained is abstains
    assert len(selection.candidates) == (0 if abstains else 5)
    assert selection.confidence == pytest.approx(confidence, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "calibration", "reason"),
    [
        (MEAN, None, "has no calibration"),
        (replace(MEAN, rerank="ioi"), CERTAIN, "'ioi' orders the candidates"),
        (replace(MEAN, aggregation=Aggregation("max_sim")), CERTAIN, "own aggregation, 'mean'"),
    ],
)
async def test_a_least_confidence_is_rejected_where_there_is_none(
    options: Options, calibration: Calibration | None, reason: str
) -> None:
    pipeline = make_pipeline(calibration)
    with pytest.raises(InvalidRequest, match=reason):
        await select(
            ArrayPool.of(TEXTS), make_context(2), options, min_confidence=0.1, pipeline=pipeline
        )


async def test_a_least_confidence_of_the_pool_that_has_no_effect_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = ArrayPool.of(TEXTS)
    pool.settings = PoolSettings(min_confidence=0.5)
    pipeline = make_pipeline(calibration=None)
    for _ in range(2):
        selection = await select(pool, make_context(2), pipeline=pipeline)
        assert len(selection.candidates) == 5
        (warning,) = selection.warnings
        assert warning in caplog.text
        assert "pool 'replies' has no effect: the model's card has no calib" in warning
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("calibration", "least"), [(CERTAIN, 0.5), (None, None), (None, 0.0)])
async def test_no_warning_without_a_least_confidence_that_has_no_effect(
    calibration: Calibration | None, least: float | None
) -> None:
    pool = ArrayPool.of(TEXTS)
    pool.settings = PoolSettings(min_confidence=least)
    pipeline = make_pipeline(calibration)
    assert (await select(pool, make_context(2), pipeline=pipeline)).warnings == ()


@pytest.mark.parametrize("option", [{"explain": True}, {"repeat": "near"}])
async def test_a_pairwise_pool_rejects_what_it_cannot_do(option: dict[str, object]) -> None:
    pool = ArrayPool.of(TEXTS)
    pool.encoder_name = "pairwise"
    options = replace(MEAN, **option)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="pool 'replies'"):
        await select(pool, make_context(2), options)


def with_groups(pool: ArrayPool, size: int) -> None:
    """Let each `size` consecutive candidates be wordings of one answer."""
    pool.candidates = [
        replace(each, group=f"g{index // size}") for index, each in enumerate(pool.candidates)
    ]


async def test_an_answer_lists_the_best_wording_of_each_group() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    with_groups(pool, 4)
    best = [each.group for each in (await select(pool, context)).candidates]
    assert len(best) == len(set(best)) == 5
    options = replace(MEAN, wordings="all")
    ranked = (await select(pool, context, options, top_k=40)).candidates
    naive = np.argsort(-score_naively(context, pool.after))
    assert [each.id for each in ranked] == [f"c{index}" for index in naive]
    assert best == list(dict.fromkeys(each.group for each in ranked))[:5]


async def test_a_repeat_of_one_wording_is_a_repeat_of_its_group() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    with_groups(pool, 4)
    first = (await select(pool, context)).candidates[0]
    repeats = Repeats(frozenset({first.text}), NO_REPEATS.after)
    after = (await select(pool, context, repeats=repeats, top_k=10)).candidates
    assert first.group not in {each.group for each in after}
    assert len(after) == 9


async def test_the_confidence_takes_its_margin_between_groups() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    pipeline = make_pipeline(Calibration(0, 1, 0, 0, 0, offset=0))
    alone = (await select(pool, context, pipeline=pipeline)).confidence
    best = np.argsort(-score_naively(context, pool.after))[:3]
    pool.candidates = [
        replace(each, group="hours") if index in best else each
        for index, each in enumerate(pool.candidates)
    ]
    together = (await select(pool, context, pipeline=pipeline)).confidence
    assert alone is not None
    assert together is not None
    assert together > alone


def add_examples(pool: ArrayPool, context: EncodedContext, index: int) -> str:
    """Give each candidate two examples, and one of them the newest utterance itself."""
    for number, each in enumerate(pool.candidates):
        pool.examples[each.id] = random_units(2, seed=50 + number)
    assert context.said is not None
    pool.examples[f"c{index}"] = np.stack([context.said, -context.said])
    return f"c{index}"


async def test_an_example_finds_its_candidate_and_is_named() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    worst = int(np.argmin(score_naively(context, pool.after)))
    wanted = add_examples(pool, context, worst)
    first, *others = (await select(pool, context)).candidates
    assert first.id == wanted
    assert first.matched is not None
    assert first.matched.example == f"example 0 of {wanted}"
    assert all(each.score <= first.score for each in others)


async def test_after_the_responder_s_own_utterance_examples_take_no_part() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    pipeline = make_pipeline(CERTAIN)
    plain = await select(pool, context, pipeline=pipeline)
    add_examples(pool, context, 3)
    assert await select(pool, replace(context, said=None), pipeline=pipeline) == plain


async def test_the_part_of_an_example_is_a_contribution_of_the_newest_utterance() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(4)
    wanted = add_examples(pool, context, 5)
    options = replace(MEAN, explain=True)
    first, *others = (await select(pool, context, options)).candidates
    assert first.id == wanted
    for each in (first, *others):
        assert each.contributions is not None
        assert sum(each.contributions) == pytest.approx(each.score, abs=1e-4)


def follow(pool: ArrayPool, index: int, reply: str) -> str:
    """Let a candidate follow a reply; return the candidate's id."""
    pool.candidates = [
        Candidate.of(each.text, each.id, {"after": [reply]} if number == index else None)
        for number, each in enumerate(pool.candidates)
    ]
    return f"c{index}"


def said_last(text: str, candidate: str | None) -> Repeats:
    return replace(NO_REPEATS, replies=(Turn("bot", text, 0.0, candidate),))


@pytest.mark.parametrize("candidate", ["c7", None])
async def test_what_follows_the_last_reply_gains_a_share_of_the_deviation(
    candidate: str | None,
) -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    follower = follow(pool, int(np.argsort(score_naively(context, pool.after))[-9]), "c7")
    options = replace(MEAN, explain=True)
    repeats = said_last(TEXTS[7], candidate)
    plain = (await select(pool, context, options, top_k=40)).candidates
    raised = (await select(pool, context, options, top_k=40, repeats=repeats)).candidates
    before = {each.id: each for each in plain}
    deviation = np.std(score_naively(context, pool.after))
    for each in raised:
        bonus = FOLLOWER_BONUS * deviation if each.id == follower else 0.0
        assert each.score == pytest.approx(before[each.id].score + bonus, rel=2e-2)
        assert each.contributions is not None
        assert sum(each.contributions) == pytest.approx(each.score, abs=1e-4)
        assert each.matched == (Matched(after="c7") if each.id == follower else None)


async def test_the_spread_of_the_scores_is_computed_once() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    follow(pool, 5, "c7")
    add_examples(pool, context, 5)
    repeats = said_last(TEXTS[7], "c7")
    await select(pool, context, repeats=repeats, pipeline=make_pipeline(CERTAIN))
    assert pool.spreads == 1


async def test_nothing_changes_after_a_reply_that_nothing_follows() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    plain = await select(pool, context)
    follow(pool, 5, "c7")
    after = await select(pool, context, repeats=said_last(TEXTS[8], "c8"))
    assert [each.score for each in after.candidates] == [each.score for each in plain.candidates]


async def test_a_follower_that_must_not_be_offered_is_not_offered() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    follower = follow(pool, 5, "c7")
    last = said_last(TEXTS[7], "c7")
    for options, repeats in (
        (replace(MEAN, exclude=frozenset([follower])), last),
        (replace(MEAN, where=Filter.of({"topic": "pay"})), last),
        (MEAN, replace(last, ids=frozenset([follower]))),
    ):
        found = await select(pool, context, options, repeats=repeats, top_k=40)
        assert follower not in {each.id for each in found.candidates}


async def test_an_answer_without_examples_has_its_own_confidence_in_a_pool_with_examples() -> None:
    pool = ArrayPool.of(TEXTS)
    context = make_context(3)
    wanted = add_examples(pool, context, 5)
    pipeline = make_pipeline(CERTAIN)
    matched = await select(pool, context, pipeline=pipeline)
    assert matched.candidates[0].id == wanted
    assert matched.confidence == pytest.approx(1)
    pool.examples = {wanted: -pool.examples[wanted][:1]}
    unmatched = await select(pool, context, pipeline=pipeline)
    assert unmatched.candidates[0].id != wanted
    assert unmatched.confidence == pytest.approx(0, abs=1e-9)


async def test_an_empty_pool_offers_nothing() -> None:
    options = replace(MEAN, rerank="ioi", diversity=0.5)
    selection = await select(ArrayPool.of([]), make_context(2), options)
    assert selection == Selection([])
