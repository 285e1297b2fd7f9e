"""The console for everybody: WCAG 2.1 AA by axe, and a turn by touch."""

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.service.console.conftest import PHONE, VIEWS, Console, OpenConsole
from tests.support.messages import REPLIES
from tests.support.service import Live

RULES: Any = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
SMALL: Any = """(least) =>
  [...document.querySelectorAll("button, input, select, textarea, summary, nav a")]
    .filter((control) => control.checkVisibility())
    .map((control) => (control.type === "radio" ? control.nextElementSibling : control))
    .map((control) => (control.type === "checkbox" ? control.labels[0] : control))
    .filter((control) => {
      const { width, height } = control.getBoundingClientRect();
      return control.type === "range" ? height < 24 : Math.min(width, height) < least;
    })
    .map((control) => control.outerHTML)
"""
"""Targets that a finger misses; a slider may be flat."""


def accessible(console: Console) -> None:
    console.page.mouse.move(0, 0)
    found = Axe().run(console.page, options=RULES)
    assert not found.violations_count, found.generate_report()


@pytest.fixture(
    params=[
        pytest.param({"color_scheme": "light"}, id="desk"),
        pytest.param({"color_scheme": "dark", **PHONE}, id="phone", marks=pytest.mark.nightly),
    ]
)
def still(live: Live, console_of: OpenConsole, request: pytest.FixtureRequest) -> Console:
    """A console without motion; axe is a script of the test, which the page's policy forbids."""
    return console_of(live, reduced_motion="reduce", bypass_csp=True, **request.param).open()


def test_replies_are_accessible(still: Console) -> None:
    page = still.page
    accessible(still)
    still.say("Hello there")
    still.candidates.first.press("Enter")
    expect(page.locator("#candidates.past")).to_be_visible()
    still.say("My parcel has not come.")
    page.get_by_text("Numbers", exact=True).click()
    page.get_by_role("button", name="Reject: ").first.click()
    expect(page.locator("#candidates > li.rejected")).to_be_visible()
    if (options := page.get_by_role("button", name="Options")).is_visible():  # on a phone
        options.click()
    page.get_by_text("Filters", exact=True).click()
    page.get_by_text("Filter as JSON", exact=True).first.click()
    page.locator("#where").fill("{")
    page.locator("#where").press("Enter")
    expect(page.locator(".wrong")).to_be_visible()
    accessible(still)


def test_goals_and_plans_are_accessible(still: Console) -> None:
    page = still.page
    still.say("My parcel has not come.")
    still.view("Goals")
    page.get_by_label("Goal", exact=True).fill("Thank you!")
    page.get_by_role("button", name="Add an utterance to avoid").click()
    page.get_by_label("Avoid", exact=True).fill("This is outrageous.")
    page.locator("#avoid input[type=range]").fill("0")
    expect(page.locator("#rejected > li").first).to_be_visible()
    accessible(still)
    still.view("Plan")
    for number in range(3):
        page.get_by_role("button", name="Add: ").nth(number).click()
    page.get_by_role("button", name="Order them").click()
    expect(page.locator("#orders svg")).to_be_visible()
    accessible(still)


def test_pools_latency_and_dialogs_are_accessible(still: Console) -> None:
    page = still.page
    still.view("Pools")
    page.locator("#search-text").fill("Hello")
    page.locator("#search-text").press("Enter")
    expect(page.locator("#found .text").first).to_be_visible()
    accessible(still)
    page.locator("#browsed .candidate").first.click()
    expect(page.locator("#candidate-dialog")).to_be_visible()
    accessible(still)
    page.keyboard.press("Escape")
    still.view("Latency")
    page.get_by_label("Over the last").select_option("since the start")
    expect(page.locator("#routes tbody tr").first).to_be_visible()
    accessible(still)
    page.get_by_role("button", name="API key").click()
    accessible(still)


def test_the_story_and_errors_are_accessible(still: Console) -> None:
    still.open("story")
    expect(still.page.locator("#story-sheet")).to_be_visible()
    still.page.route("**/turn", lambda route: route.abort())
    still.type("Anybody?")
    still.problem("The service cannot be reached")
    accessible(still)


def test_a_turn_is_taken_by_touch(live: Live, console_of: OpenConsole) -> None:
    console = console_of(live, **PHONE).open()
    page = console.page
    page.get_by_role("button", name="Can you help me?").tap()
    expect(console.candidates).to_have_count(6)
    console.idle()
    second = console.candidates.nth(1).locator(".text").inner_text()
    console.candidates.nth(1).tap()
    page.get_by_role("button", name=f"Use: {second}").tap()
    expect(console.posts).to_have_count(2)
    console.idle()
    page.get_by_label("Message").tap()
    page.keyboard.insert_text("Thank you!")
    page.get_by_role("button", name="Send").tap()
    expect(console.posts).to_have_count(3)
    console.idle()
    assert console.transcript[1:] == [("bot", second), ("user", "Thank you!")]
    page.get_by_role("button", name="Undo").tap()
    expect(console.posts).to_have_count(2)


def test_every_view_fits_a_phone_and_its_targets_a_finger(
    live: Live, console_of: OpenConsole
) -> None:
    tagged = {
        "group": "a-group-with-a-long-name",
        "metadata": {"topic": "t" * 20, "intent": "i" * 20},
    }
    items = [{"id": f"r{number}", "text": text, **tagged} for number, text in enumerate(REPLIES)]
    live.put("/pools/default/candidates", items)
    console = console_of(live, **PHONE, color_scheme="dark").open()
    page = console.page
    page.get_by_role("button", name="Options").tap()
    page.get_by_label("Wordings").select_option("all")
    page.get_by_role("button", name="Options").tap()
    console.say(*(f"Sentence {number}, which is long enough to wrap." for number in range(4)))
    repeats = page.get_by_label("Repeats")
    expect(repeats).to_be_hidden()
    page.get_by_role("button", name="Options").tap()
    expect(repeats).to_be_visible()
    page.get_by_text("Filters", exact=True).tap()
    page.get_by_text("Filter as JSON", exact=True).first.tap()
    for view in VIEWS:
        console.view(view.capitalize())
        expect(page.locator(f"[data-view={view}].view")).to_be_visible()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width == PHONE["viewport"]["width"], view
        assert page.evaluate(SMALL, 44) == [], view
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128, "it is not dark"
