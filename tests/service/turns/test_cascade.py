"""The model's own re-ranker behind the service."""

import shutil
from pathlib import Path

import pytest

from tests.support.messages import DIALOGUE, REPLIES, posts, scores
from tests.support.rerankers import CASCADE
from tests.support.service import Launch, Live, with_replies
from turnwise.models.card import update_card
from turnwise.models.confidence import Calibration
from turnwise.models.data import Utterance
from turnwise.models.rerankers import own
from turnwise.models.rerankers.own import OwnReranker
from turnwise.service.app import loading
from turnwise.service.settings import Settings

IN_DOUBT = Calibration(0, 0, 0, 0, 0, offset=-1.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, with_reranker: Path) -> Path:
    """A model with heads that is never sure, and reads the first three hits of every turn."""
    folder = tmp_path_factory.mktemp("cascade") / "model"
    shutil.copytree(with_reranker, folder)
    update_card(folder, "confidence", IN_DOUBT)
    return folder


@pytest.fixture(scope="module")
def _cascading(share: Launch, model: Path, in_torch: Path) -> Live:
    return share(model=str(model), data_dir=in_torch)


@pytest.fixture
def cascading(_cascading: Live) -> Live:
    return with_replies(_cascading)


def test_an_unsure_turn_is_re_ranked_and_says_so(cascading: Live) -> None:
    before = cascading.say("s", DIALOGUE[:3], rerank=None)
    labels = {"namespace": cascading.namespace, "pool": "default", "outcome": "reranked"}
    counted = cascading.increase("turnwise_cascades_total", **labels)
    answer = cascading.say("t", DIALOGUE[:3])
    assert "reranked" not in before
    assert answer["reranked"] is True
    assert answer["timings_ms"]["rerank"] > 0
    assert answer["confidence"] != before["confidence"]
    found = [each["id"] for each in before["candidates"]]
    got = [each["id"] for each in answer["candidates"]]
    assert sorted(got[:3]) == sorted(found[:3])
    assert got[3:] == found[3:]
    assert list(scores(answer).values()) == sorted(scores(answer).values(), reverse=True)
    assert counted() == 2


def test_the_named_re_ranker_is_the_model_s_own(cascading: Live, model: Path) -> None:
    said = [*DIALOGUE[:2], ("user", "My parcel has not come.")]
    answer = cascading.say("s", said, rerank="cross_encoder", top_k=len(REPLIES))
    reranker = OwnReranker(model)
    context = reranker.read_context([Utterance(*each) for each in said], "bot")
    wanted = dict(zip(REPLIES, reranker.scores(context, REPLIES).tolist(), strict=True))
    assert scores(answer) == pytest.approx(wanted, abs=0.02)
    assert "reranked" not in answer
    schemas = cascading.get("/openapi.json")["components"]["schemas"]
    offered = schemas["TurnRequest"]["properties"]["rerank"]["anyOf"][0]["enum"]
    assert offered == ["auto", "cross_encoder"]


def test_rank_with_a_pool_is_re_ranked_as_a_turn_is(cascading: Live) -> None:
    context = posts(DIALOGUE[:3])
    turn = cascading.say("s", DIALOGUE[:3], repeat=True)
    ranked = cascading.post("/rank", context=context, pool="default")
    assert ranked["reranked"] is True
    assert list(scores(ranked))[:5] == list(scores(turn))
    assert ranked["confidence"] == pytest.approx(turn["confidence"], abs=1e-3)
    goals = [{"text": "Thank you", "speaker": "user"}]
    for asked in ({"pool": "default", "goals": goals}, {"candidates": REPLIES}):
        assert "reranked" not in cascading.post("/rank", context=context, **asked)


def test_a_re_ranker_that_fails_leaves_the_answer_of_the_first_stage(
    cascading: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    first = cascading.say("s", DIALOGUE[:1], rerank=None)
    labels = {"namespace": cascading.namespace, "pool": "default", "outcome": "failed"}
    counted = cascading.increase("turnwise_cascades_total", **labels)
    monkeypatch.setattr(OwnReranker, "forward", broken)
    answer = cascading.say("t", DIALOGUE[:1])
    assert "reranked" not in answer
    assert answer["candidates"] == first["candidates"]
    assert answer["confidence"] == first["confidence"]
    assert counted() == 1


def test_guard_rails_of_a_pool_reject_what_they_reject_of_the_texts(cascading: Live) -> None:
    goals = [{"text": "Great, thank you", "speaker": "user"}]
    avoid = [{"text": "Then cancel it", "speaker": "user", "threshold": 0.3}]
    asked = {"context": posts(DIALOGUE[:3]), "goals": goals, "fit_weight": 0}
    sent = cascading.post("/rank", **asked, avoid=avoid, candidates=REPLIES)
    kept = cascading.post("/rank", **asked, avoid=avoid, pool="default")
    for answer in (sent, kept):
        assert "estimated" not in answer
    reached = {each["text"]: each["reachability"] for each in sent["rejected"]}
    assert {each["text"]: each["reachability"] for each in kept["rejected"]} == pytest.approx(
        reached, abs=0.01
    )
    assert scores(kept) == pytest.approx(scores(sent), abs=0.01)


def test_an_answer_toward_goals_alone_says_that_it_is_estimated(cascading: Live) -> None:
    asked = {"context": posts(DIALOGUE[:3]), "goals": [{"text": "Great", "speaker": "user"}]}
    assert cascading.post("/rank", **asked, pool="default")["estimated"] is True
    assert "estimated" not in cascading.post("/rank", **asked, candidates=REPLIES)


def test_where_no_cpu_runs_the_model_torch_computes_the_same(
    model: Path, in_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "runs_on_cpu", lambda _: False)  # as on a GPU
    settings = Settings.model_validate({"model": str(model), "device": "cpu", "data_dir": in_torch})
    loaded = loading.load_own_reranker(settings)
    assert loaded is not None
    in_place, cascade = loaded
    assert (in_place.runtime, cascade) == ("torch float32 on cpu", CASCADE)
    monkeypatch.setattr(own, "multiplies_bytes", lambda: False)
    wanted = OwnReranker(model).scores(["[O] Where is it?"], REPLIES)
    assert in_place.scores(["[O] Where is it?"], REPLIES) == pytest.approx(wanted, abs=1e-4)
