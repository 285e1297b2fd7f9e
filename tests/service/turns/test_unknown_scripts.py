"""Texts whose script the shipped model hardly knows: no confidence, and a warning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import REPLIES
from tests.support.service import Live, launching

CHINESE = "我的订单在哪里"
WARNING = (
    "the model hardly knows the script of the newest utterance, so that there is no confidence"
)


@pytest.fixture(scope="module")
def english(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service with the shipped model and a pool of a few replies."""
    with launching(model=str(shipped), data_dir=tmp_path_factory.mktemp("data")) as start:
        live = start()
        live.fill(REPLIES)
        yield live


@pytest.mark.parametrize("text", [CHINESE, "Где мой заказ?"])
def test_a_message_in_an_unknown_script_has_no_confidence(english: Live, text: str) -> None:
    answer = english.turn("s", "user", text, commit=False)
    assert answer["confidence"] is None
    assert answer["candidates"]
    assert answer["warnings"] == [WARNING]
    ranked = english.post("/rank", context=[{"speaker": "user", "text": text}], pool="default")
    assert (ranked["confidence"], ranked["warnings"]) == (None, [WARNING])


def test_with_a_threshold_it_abstains(english: Live) -> None:
    answer = english.turn("s", "user", CHINESE, commit=False, min_confidence=0.1)
    assert (answer["abstained"], answer["candidates"]) == (True, [])
    assert answer["confidence"] is None


@pytest.mark.parametrize("text", ["Où est ma commande ?", "👍"])
def test_other_messages_have_a_confidence(english: Live, text: str) -> None:
    answer = english.turn("s", "user", text, commit=False)
    assert answer["confidence"] is not None
    assert "warnings" not in answer


def test_an_upload_names_candidates_in_unknown_scripts(english: Live) -> None:
    items: list[dict[str, Any]] = [{"id": "zh", "text": CHINESE}, {"id": "en", "text": "Hello"}]
    english.put("/pools/zh", {})
    edited = english.put("/pools/zh/candidates", items)
    assert edited["warnings"] == ["the model hardly knows the script of candidate 'zh'"]
