"""The console in chromium: the page, and what a person does with it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.support.service import Live

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)

SLOW_MS = 120_000
VIEWS = ["replies", "goals", "plan", "pools", "latency"]
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
}


@pytest.fixture(scope="module")  # an open playwright is a running event loop in its thread
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    expect.set_options(timeout=SLOW_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Console:
    """The page, and what a person does with it."""

    page: Page
    live: Live
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def session(self) -> str:
        return self.page.get_by_label("Session", exact=True).input_value()

    @property
    def transcript(self) -> list[tuple[str, str]]:
        """As the service has it."""
        posts = self.live.get(f"/sessions/{self.session}")["transcript"]
        return [(post["speaker"], post["text"]) for post in posts]

    @property
    def posts(self) -> Locator:
        return self.page.locator(".turn")

    @property
    def candidates(self) -> Locator:
        return self.page.locator("#candidates .reply")

    def open(self, view: str = "replies") -> "Console":
        self.page.goto(f"{self.live.url}/#{view}")
        return self

    def view(self, name: str) -> None:
        self.page.get_by_role("navigation").get_by_role("link", name=name).click()

    def type(self, text: str) -> None:
        self.page.get_by_label("Message").fill(text)
        self.page.keyboard.press("Enter")

    def say(self, *texts: str) -> None:
        for text in texts:
            count = self.posts.count()
            self.type(text)
            expect(self.posts).to_have_count(count + 1)
            self.idle()

    def idle(self) -> None:
        expect(self.page.locator("#talk[data-busy]")).to_have_count(0)

    def problem(self, words: str) -> None:
        expect(self.page.get_by_role("alert").filter(has_text=words)).to_be_visible()


OpenConsole = Callable[..., Console]


@pytest.fixture
def console_of(browser: Browser) -> Iterator[OpenConsole]:
    """From a service to its console; in the end nothing was asked of anybody else."""
    consoles: list[Console] = []

    def console(live: Live, **options: object) -> Console:
        page = browser.new_context(**options).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(SLOW_MS)
        opened = Console(page, live)
        page.on("request", lambda request: opened.asked.append(request.url))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on(
            "console",
            lambda said: "Security Policy" in said.text and opened.complaints.append(said.text),
        )
        consoles.append(opened)
        return opened

    yield console
    for opened in consoles:
        opened.page.context.close()
        elsewhere = [u for u in opened.asked if not u.startswith(opened.live.url)]
        assert not elsewhere
        assert not opened.complaints


@pytest.fixture
def console(live: Live, console_of: OpenConsole) -> Console:
    return console_of(live).open()
