"""A service whose encoder forms no pairs: CCL's scores are sums over the utterances."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from tests.support.messages import DIALOGUE, REPLIES, posts, scores
from tests.support.service import Launch, Live, with_replies
from turnwise.models.arrays import Float64
from turnwise.models.data import Utterance, merge_runs
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Role, relation_to

CONTEXT = posts(DIALOGUE)
AGGREGATIONS: list[dict[str, object]] = [
    {"aggregation": "mean"},
    {"last_rows": 2},
    {"aggregation": "max_sim"},
]


class Served(NamedTuple):
    live: Live
    encoder: UtteranceEncoder

    def parts(self, text: str, fields: dict[str, object], posts: int = len(DIALOGUE)) -> Float64:
        """b_i · a of each utterance (n,), those that do not count being 0."""
        said = merge_runs(Utterance(*post) for post in DIALOGUE[:posts])
        after = self.encoder.encode([text], Role.AFTER)[0].astype(np.float64)
        b = [
            self.encoder.encode([u.text], Role.SECOND, relation_to(u.speaker, "bot"))[0]
            for u in said
        ]
        parts = np.stack(b).astype(np.float64) @ after
        if fields.get("aggregation") == "max_sim":
            return np.asarray(parts / len(parts))
        parts[: max(0, len(parts) - int(str(fields.get("last_rows", len(parts)))))] = 0
        return np.asarray(parts)


@pytest.fixture(scope="module")
def _served(
    share: Launch,
    model_of: Callable[[EncoderKind], dict[str, object]],
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
) -> Served:
    kind = EncoderKind.CURVED
    return Served(share(**model_of(kind)), tiny_encoder(kind))


@pytest.fixture
def served(_served: Served) -> Served:
    with_replies(_served.live)
    return _served


def test_turns_sum_over_the_utterances(served: Served) -> None:
    live = served.live
    live.say("s", DIALOGUE[:-1])
    for fields in AGGREGATIONS:
        answer = live.turn("s", *DIALOGUE[-1], explain=True, top_k=len(REPLIES), **fields)
        assert len(answer["candidates"]) == len(REPLIES)
        for item in answer["candidates"]:
            parts = served.parts(item["text"], fields)
            assert item["contributions"] == pytest.approx(parts.tolist(), abs=1e-3)
            assert item["score"] == pytest.approx(parts.sum(), abs=1e-3)
        live.http.delete("/sessions/s/turns/last").raise_for_status()
    bare = live.turn("s", *DIALOGUE[-1], aggregation="mean")["candidates"][0]
    naive = max(served.parts(text, {}).sum() for text in REPLIES)
    assert bare["score"] == pytest.approx(naive, abs=1e-3)


def test_ranking_sums_over_the_utterances_and_reaches_goals_by_one_cosine(served: Served) -> None:
    for fields in AGGREGATIONS:
        answer = served.live.post("/rank", context=CONTEXT, candidates=REPLIES, **fields)
        naive = {text: served.parts(text, fields).sum() for text in REPLIES}
        assert scores(answer, "fit") == pytest.approx(naive, abs=1e-3)
    goal = "I have booked it for you."
    answer = served.live.post(
        "/rank", context=CONTEXT, candidates=REPLIES, goals=[{"text": goal, "speaker": "user"}]
    )
    after = served.encoder.encode([goal], Role.AFTER)[0]
    for item in answer["ranking"]:
        before = served.encoder.encode([item["text"]], Role.SECOND, relation_to("bot", "user"))[0]
        assert item["score"] == pytest.approx(float(before @ after), abs=1e-3)
