"""The pairwise model, IoI and a cross-encoder behind the service."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder

from tests.support.messages import REPLIES, posts, scores, wrong
from tests.support.rerankers import save_tiny_cross_encoder
from tests.support.service import Launch, Live, with_replies
from turnwise.models.arrays import Float32
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.roles import EncoderKind

SAID = ["Hello there", "Hi, how can I help?", "My parcel has not come.", "Let me look into it."]


@pytest.fixture(scope="module")
def pairwise(pairwise_folder: Path) -> PairwiseModel:
    return PairwiseModel.load(pairwise_folder, device="cpu")


@pytest.fixture(scope="module")
def ioi(ioi_folder: Path) -> IoI:
    return IoI.load(ioi_folder, device="cpu")


@pytest.fixture(scope="module")
def cross_encoder_folder(
    tmp_path_factory: pytest.TempPathFactory, tiny_encoder_folder: Callable[[EncoderKind], Path]
) -> Path:
    folder = tmp_path_factory.mktemp("cross") / "tiny-cross"
    return save_tiny_cross_encoder(folder, tiny_encoder_folder(EncoderKind.SINGLE))


@pytest.fixture(scope="module")
def predict(cross_encoder_folder: Path) -> Callable[..., Float32]:
    """Score candidates after a text as sentence-transformers does."""
    model = CrossEncoder(str(cross_encoder_folder), device="cpu")

    def predicted(text: str, candidates: list[str], **options: object) -> Float32:
        pairs = [(text, candidate) for candidate in candidates]
        found: Float32 = model.predict(pairs, show_progress_bar=False, **options)
        return found

    return predicted


@pytest.fixture(scope="module")
def _crossing(share: Launch, cross_encoder_folder: Path, in_torch: Path) -> Live:
    return share(reranker=cross_encoder_folder, data_dir=in_torch)


@pytest.fixture
def crossing(_crossing: Live) -> Live:
    return with_replies(_crossing)


def alternating(texts: list[str]) -> list[tuple[str, str]]:
    return [(("user", "bot")[place % 2], text) for place, text in enumerate(texts)]


@pytest.mark.parametrize("length", [1, 4])
def test_turn_answers_from_a_pairwise_pool(
    by_pairs: Live, pairwise: PairwiseModel, length: int
) -> None:
    said = SAID[:length]
    answer = by_pairs.say("s", alternating(said), pool="pairs", respond=True, top_k=len(REPLIES))
    wanted = pairwise.encode_contexts([said])[0] @ pairwise.encode_responses(REPLIES).T
    naive = dict(zip(REPLIES, wanted.tolist(), strict=True))
    assert scores(answer) == pytest.approx(naive, abs=2e-3)
    assert answer["candidates"][0]["text"] == REPLIES[int(np.argmax(wanted))]


def test_a_pairwise_pool_takes_no_examples(by_pairs: Live) -> None:
    before = by_pairs.get("/pools/pairs")["version"]
    candidates = [{"text": "At nine."}, {"text": "At five.", "examples": ["When?"]}]
    answer = by_pairs.http.put("/pools/pairs/candidates", json=candidates)
    assert wrong(answer) == [["body", "examples"]]
    assert "a pool with the encoder 'pairwise' takes no examples" in answer.text
    assert by_pairs.get("/pools/pairs")["version"] == before


def test_a_pool_keeps_its_encoder_as_long_as_it_is_there(by_pairs: Live) -> None:
    assert by_pairs.http.put("/pools/pairs", json={"encoder": "default"}).status_code == 409
    by_pairs.put("/pools/pairs", {"description": "Replies"})
    told = by_pairs.get("/pools/pairs")
    assert (told["encoder"], told["description"], told["size"]) == (
        "pairwise",
        "Replies",
        len(REPLIES),
    )
    assert by_pairs.http.delete("/pools/pairs").status_code == 204
    by_pairs.fill(pool="pairs")
    assert by_pairs.get("/pools/pairs")["encoder"] == "default"


def test_a_service_without_the_model_says_so(
    launch: Launch, pairwise_folder: Path, in_torch: Path
) -> None:
    launch(pairwise=pairwise_folder, data_dir=in_torch).http.put(
        "/pools/pairs", json={"encoder": "pairwise"}
    )
    plain = launch()
    refused = plain.http.put("/pools/more", json={"encoder": "pairwise"})
    assert wrong(refused) == [["body", "encoder"]]
    answer = plain.try_turn(pool="pairs")
    assert answer.status_code == 503
    assert "TURNWISE_PAIRWISE" in answer.json()["detail"]
    assert plain.http.get("/readyz").status_code == 200
    assert "TURNWISE_PAIRWISE" in plain.http.get("/pools/pairs").json()["detail"]
    assert plain.http.delete("/pools/pairs").status_code == 204
    assert plain.http.get("/pools/pairs").status_code == 404


def test_rank_takes_the_reranker_for_the_next_utterance_score(calibrated: Live, ioi: IoI) -> None:
    context = posts(alternating(SAID[:3]))
    wanted = ioi.scores(SAID[:3], REPLIES)
    asked = {"context": context, "candidates": REPLIES, "rerank": "ioi"}
    answer = calibrated.post("/rank", **asked)
    assert [one["index"] for one in answer["ranking"]] == np.argsort(-wanted).tolist()
    goals = [{"text": "Thank you", "speaker": "user"}]
    toward = calibrated.post("/rank", **asked, goals=goals, fit_weight=2.0)
    for one in toward["ranking"]:
        assert one["fit"] == pytest.approx(float(wanted[one["index"]]), abs=1e-5)
        assert one["score"] == pytest.approx(one["goals"][0] + 2 * one["fit"], abs=1e-4)


def test_more_candidates_than_a_short_list_are_not_reranked(calibrated: Live) -> None:
    context = posts([("user", "Hello")])
    body = {"context": context, "candidates": ["x"] * 101, "rerank": "ioi"}
    assert wrong(calibrated.http.post("/rank", json=body)) == [["body", "candidates"]]
    goals = [{"text": "Bye"}]  # alone they ask for no score that has a limit
    assert len(calibrated.post("/rank", **body, goals=goals)["ranking"]) == 101


def test_without_a_reranker_none_can_be_asked_for(live: Live) -> None:
    assert wrong(live.try_turn(rerank="ioi")) == [["body", "rerank"]]
    assert live.http.get("/sessions/s").status_code == 404


def test_a_reranker_that_fails_leaves_the_session_as_it_was(
    calibrated: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(IoI, "scores", broken)
    assert calibrated.try_turn(rerank="ioi").status_code == 500
    assert calibrated.http.get("/sessions/s").status_code == 404
    assert calibrated.turn("s", "user", "Hello")["turn"] == 1


def test_a_cross_encoder_reads_the_last_three_utterances_with_each_candidate(
    crossing: Live, predict: Callable[..., Float32]
) -> None:
    crossing.say("s", alternating(SAID))
    answer = crossing.turn("s", "user", "Thanks", rerank="cross_encoder", top_k=3)
    said = " ".join([*SAID[2:], "Thanks"])
    wanted = predict(said, REPLIES, activation_fn=torch.nn.Identity())
    order = np.argsort(-wanted)[:3]
    assert list(scores(answer)) == [REPLIES[place] for place in order]
    assert list(scores(answer).values()) == pytest.approx(wanted[order], abs=1e-4)
    assert answer["timings_ms"]["rerank"] > 0
    ranked = crossing.post("/rank", session_id="s", candidates=REPLIES, rerank="cross_encoder")
    assert [one["index"] for one in ranked["ranking"]][:3] == order.tolist()


def test_documents_are_ordered_by_the_cross_encoder(
    crossing: Live, predict: Callable[..., Float32]
) -> None:
    long = "Here it is: " + "kept " * 1000
    documents = [*REPLIES, long, ""]
    wanted = predict(SAID[2], documents)  # probabilities
    wanted[-1] = 0.0  # blank documents come last
    order = np.argsort(-wanted)
    for path in ("/v1/rerank", "/v2/rerank"):
        answer = crossing.post(path, query=SAID[2], documents=documents, model="any", top_n=None)
        assert answer["model"] == "tiny-cross"
        assert [one["index"] for one in answer["results"]] == order.tolist()
        assert [one["relevance_score"] for one in answer["results"]] == pytest.approx(
            wanted[order], abs=1e-4
        )
    objects = [{"text": text, "id": 1} for text in documents]
    asked = {"query": SAID[2], "documents": objects, "return_documents": True, "rank_fields": ["x"]}
    answer = crossing.post("/v1/rerank", **asked, top_n=2)
    assert [one["document"]["text"] for one in answer["results"]] == [
        documents[place] for place in order[:2]
    ]
    many = crossing.http.post("/v1/rerank", json={"query": "a", "documents": ["b"] * 101})
    assert wrong(many) == [["body", "documents"]]


def test_blank_documents_come_last_by_the_encoder_as_well(live: Live) -> None:
    results = live.post("/v1/rerank", query=SAID[2], documents=["", " \n", *REPLIES])["results"]
    assert [one["index"] for one in results[-2:]] == [0, 1]
    assert [one["relevance_score"] for one in results[-2:]] == [-1.0, -1.0]
