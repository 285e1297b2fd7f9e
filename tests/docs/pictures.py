"""Takes the pictures of the console again, of a service that runs with its default model and pool.

With `pip install playwright`, chromium and `make run`: `python tests/docs/pictures.py http://127.0.0.1:8000`.
With the URL that `make demo` prints, it takes those of the story.
"""

import shutil
import sys
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SIZE = {"width": 1320, "height": 1132}
SESSION = "ada"
DIALOGUE = [
    ("user", "Hello! I would like to book a double room."),
    ("bot", "I can book a room for you. For which nights would it be?"),
    ("user", "From Friday to Sunday, for two people."),
    ("bot", "There is just one double room left for that weekend."),
    ("user", "How much is it, and is breakfast included?"),
]


STORY = {1: "select", 4: "filter", 5: "abstain", 7: "goal", 8: "plan"}
"""The pictures of the story, by its steps."""


def main(url: str) -> None:
    """Take the pictures that the URL is for."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        if url.endswith("#story"):
            follow_story(browser, url)
        else:
            hold_dialogue(browser, url)
            work_on_pool(browser, url)
        browser.close()


def follow_story(browser: Browser, url: str) -> None:
    """Click through the story of the demo."""
    page = browser.new_context(viewport={"width": 1180, "height": 760}).new_page()
    page.goto(url)
    for step in range(1, max(STORY) + 1):
        page.locator("#story-next").click()
        expect(page.locator("#story-place")).to_have_text(f"{step} of 9")
        page.wait_for_load_state("networkidle")
        if STORY.get(step) == "goal":
            expect(page.locator("#moves li").first).to_be_visible()
        if step in STORY:
            page.screenshot(path=FOLDER / f"story-{STORY[step]}.png")


def hold_dialogue(browser: Browser, url: str) -> None:
    """Say the dialogue, and look at it in both views."""
    with httpx.Client(base_url=url, timeout=30) as service:
        service.delete(f"/sessions/{SESSION}")
    replies = opened(browser, url, "replies", "light")
    for count, (speaker, text) in enumerate(DIALOGUE, start=1):
        replies.locator("#composer").get_by_text(speaker.capitalize(), exact=True).click()
        replies.locator("#say").fill(text)
        replies.keyboard.press("Enter")
        expect(replies.locator(".turn")).to_have_count(count)
        expect(replies.locator("#talk[data-busy]")).to_have_count(0)
    expect(replies.locator("#scores svg")).to_be_visible()
    replies.screenshot(path=FOLDER / "console-replies.png")
    goals = opened(browser, url, "goals", "dark")
    expect(goals.locator(".turn")).to_have_count(len(DIALOGUE))
    goals.locator("#goal-list .text").fill("Great, we will take the room. Thank you!")
    goals.get_by_role("button", name="Add an utterance to avoid").click()
    goals.locator("#avoid .text").fill("That is too expensive for us.")
    goals.locator("#avoid input[type=range]").fill("0.7")
    goals.get_by_role("heading", name="Goals").click()
    expect(goals.locator("#rejected > li").first).to_be_visible()
    goals.screenshot(path=FOLDER / "console-goals.png")


def work_on_pool(browser: Browser, url: str) -> None:
    """Browse the pool of a bank, filter it, and try a message."""
    lines = (FOLDER.parents[1] / "examples" / "demo" / "banking.jsonl").read_bytes()
    with httpx.Client(base_url=url, timeout=60) as service:
        service.put("/pools/bank", json={}).raise_for_status()
        headers = {"Content-Type": "application/x-ndjson"}
        service.put("/pools/bank/candidates", content=lines, headers=headers).raise_for_status()
    page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
    page.goto(f"{url}/#pools")
    expect(page.locator("#browse-pool")).to_contain_text("bank")
    page.locator("#browse-pool").select_option("bank")
    page.locator("#menus [name=intent]").select_option('"lost card"')
    page.locator("#search-text").fill("I have lost my card")
    page.keyboard.press("Enter")
    expect(page.locator("#verdict")).to_contain_text("Confidence")
    page.locator("#threshold").fill("0.6")
    page.wait_for_load_state("networkidle")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=FOLDER / "console-pools.png")
    with httpx.Client(base_url=url, timeout=60) as service:
        service.delete("/pools/bank").raise_for_status()


def opened(browser: Browser, url: str, view: str, scheme: str) -> Page:
    """Open a view of the console, in the session."""
    page = browser.new_context(viewport=SIZE, color_scheme=scheme).new_page()
    page.goto(f"{url}/#{view}")
    page.get_by_label("Session", exact=True).fill(SESSION)
    page.keyboard.press("Enter")
    page.wait_for_load_state("networkidle")
    return page


if __name__ == "__main__":
    main(sys.argv[1])
