"""`make demo`: the pools of `examples/demo`, and the story in the console, click by click."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from tests.service.console.conftest import SLOW_MS

DEMO = Path(__file__).parents[3] / "examples" / "demo"
CARD = "I am sorry that your card is gone. Shall I block it for you right now?"
BLOCKED = "Done, the card is blocked. Shall I order a new one for you?"
PHONE: ViewportSize = {"width": 390, "height": 664}
"""What a browser shows between its bars."""
PLAN = [
    "Would you rather go to the sea, to the mountains or to a city?",
    "I have found a small hotel by the beach, with breakfast on the terrace.",
    "Would you like to pay by card or by bank transfer?",
    "Everything is booked. Here is your travel plan.",
    "Have a wonderful trip!",
]


@pytest.fixture
def story(shipped: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of the story, as the demo prints it."""
    data = tmp_path / ".turnwise" / "demo"
    data.mkdir(parents=True)
    # With no folder to keep an exported model in, torch runs it: the same, but at once.
    (data / "models").touch()
    away = {"TURNWISE_REDIS_URL": "redis://127.0.0.1:1", "BROWSER": "true"}
    away["TURNWISE_MODEL"] = str(shipped)
    command = [sys.executable, str(DEMO)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | away, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout
        try:
            yield next(url[0] for line in demo.stdout if (url := re.search(r"http\S+#story", line)))
        finally:
            demo.terminate()
    assert demo.returncode == 0


def said(page: Page) -> list[str]:
    return page.locator(".turn").all_inner_texts()


def best(page: Page) -> str:
    return page.locator("#candidates .text").first.inner_text()


def is_above_the_story(seen: Locator) -> bool:
    """Whether it is in the window, and the sheet of the story does not hide it."""
    box = seen.bounding_box()
    sheet = seen.page.locator("#story-sheet").bounding_box()
    return bool(box and sheet and box["y"] >= 0 and box["y"] + box["height"] <= sheet["y"])


@pytest.mark.nightly
def test_the_story_shows_what_it_says(story: str, browser: Browser) -> None:
    page = browser.new_context(viewport=PHONE).new_page()
    page.set_default_timeout(SLOW_MS)
    page.goto(story)
    expect(page.locator("#story-sheet")).to_be_visible()
    assert page.evaluate("scrollY") == 0
    place = page.locator("#story-place")

    def step(number: int) -> None:
        page.locator("#story-next").click()
        expect(place).to_have_text(f"{number} of 9")

    step(1)
    assert best(page) == CARD
    took = page.locator("#answer-facts")
    expect(took).to_have_text(re.compile("banking, version 1; .* m?s"))
    assert is_above_the_story(took)
    step(2)
    assert said(page) == ["Hello! I have lost my card.", CARD, "Yes, please!"]
    assert best(page) == BLOCKED
    step(3)
    assert said(page)[3:] == [BLOCKED, "Great! How do I get the new card?"]
    assert "by post" in best(page)
    expect(page.locator("#candidates .reply").first).to_contain_text("follows lost-card-5")
    step(4)
    expect(page.locator("#where")).to_have_value('{"channel":"branch"}')
    expect(page.locator("#where-menus [name=channel]")).to_have_value('"branch"')
    at_once = best(page)
    assert "at any branch" in at_once
    step(5)
    assert said(page)[5] == at_once
    expect(page.locator("#abstained")).to_contain_text("below the threshold of 0.25")
    expect(page.locator("#candidates .reply")).to_have_count(0)
    step(6)
    assert "Pancakes!" in best(page)
    expect(page.locator("#abstained")).to_be_empty()
    step(7)
    lead = page.get_by_role("list", name="Toward the goal").get_by_role("listitem").first
    expect(lead.locator(".text")).to_have_text(
        "Would you rather go to the sea, to the mountains or to a city?"
    )
    expect(lead.locator(".move")).to_contain_text(re.compile(r"up (1[5-9]|2[0-5])"))
    assert is_above_the_story(lead)
    step(8)
    picture = page.get_by_role("img", name=f"Best order: {', then '.join(PLAN)}")
    expect(picture).to_be_visible()
    step(9)
    expect(page.locator("#candidates .reply")).to_have_count(6)
    page.get_by_role("button", name="Close the story").click()
    expect(page.locator("#story-sheet")).to_be_hidden()
    page.reload()
    expect(page.locator("#candidates .reply")).to_have_count(6)
    expect(page.locator("#story-sheet")).to_be_hidden()
    page.context.close()
