"""The console in a real browser, by hand and keyboard, against the whole service."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.service.console.conftest import VIEWS, Console, OpenConsole
from tests.support.messages import QUESTIONS, REPLIES
from tests.support.service import Launch, Live, api_key
from tests.support.waiting import eventually

TOP = {"x": 60, "y": 8}
BOTTOM = {"x": 60, "y": 54}
HEALTH_MS = 5_000
MARKUP = "<img src=x onerror=\"document.title='broken'\"> <b>bold</b>"


def shown(number: float, digits: int = 3) -> str:
    """As the console writes it: with a minus sign, and without a negative zero."""
    text = f"{number:.{digits}f}"
    return text.replace("-", "" if float(text) == 0 else "\N{MINUS SIGN}")


def with_metadata(live: Live) -> None:
    """Give the replies of the pool a place, and a topic in turn."""
    items = [
        {"id": f"r{n}", "text": text, "metadata": {"place": n, "topic": ["even", "odd"][n % 2]}}
        for n, text in enumerate(REPLIES)
    ]
    live.put("/pools/default/candidates", items)


def show_filters(console: Console) -> None:
    """Show both filters as JSON."""
    page = console.page
    page.locator("#filters > summary").click()
    for summary in ("Filter as JSON", "Filter of the session as JSON"):
        page.locator("#filters").get_by_text(summary, exact=True).click()


def enter(field: Locator, text: str) -> None:
    field.fill(text)
    field.press("Enter")


def lost_once(route: Route) -> None:
    """The service hears the request, and the answer does not arrive."""
    route.fetch()
    route.abort()
    route.request.frame.page.unroute("**/turn")


def overloaded_once(route: Route) -> None:
    problem = {"type": "urn:turnwise:problem:overloaded", "title": "Too many", "status": 429}
    route.fulfill(status=429, json=problem, headers={"Retry-After": "1"})
    route.request.frame.page.unroute("**/turn")


def test_candidates_appear_with_their_scores_and_one_becomes_the_reply(console: Console) -> None:
    console.say("Where is my parcel?")
    best = console.live.post("/rank", session_id=console.session, pool="default", top_k=6)
    rows = console.page.locator("#candidates > li")
    expect(rows).to_have_count(6)
    for row, ranked in zip(rows.all(), best["ranking"], strict=True):
        expect(row.locator(".text")).to_have_text(ranked["text"])
        expect(row.locator(".score")).to_contain_text(shown(ranked["score"]))
    second = best["ranking"][1]["text"]
    console.page.get_by_role("button", name=f"Use: {second}").click()
    expect(console.posts).to_have_text(["Where is my parcel?", second])
    assert console.transcript[1] == ("bot", second)


def test_the_keyboard_is_enough(console: Console) -> None:
    keys = console.page.keyboard
    console.page.get_by_label("Message").focus()
    keys.type("Hello there")
    keys.press("Enter")
    expect(console.candidates.first).to_be_visible()
    console.idle()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    expect(console.candidates.nth(1)).to_be_focused()
    expect(console.candidates.nth(1)).to_have_attribute("aria-pressed", "true")
    second = console.candidates.nth(1).locator(".text").inner_text()
    keys.press("Enter")
    expect(console.posts).to_have_text(["Hello there", second])
    expect(console.page.get_by_label("Message")).to_be_focused()
    keys.type("And now?")
    keys.press("Enter")
    expect(console.posts).to_have_count(3)
    console.idle()
    keys.press("ArrowDown")
    first = console.candidates.first.locator(".text").inner_text()
    keys.press("e")
    expect(console.page.get_by_label("Message")).to_have_value(first)
    keys.press("Enter")
    expect(console.posts).to_have_count(4)
    console.idle()
    assert console.transcript[2:] == [("user", "And now?"), ("bot", first)]


def test_the_heat_map_shows_what_speaks_for_each_candidate(console: Console) -> None:
    console.say("Hello there")
    console.candidates.first.press("Enter")
    expect(console.posts).to_have_count(2)
    console.say("My parcel has not come.")
    ranked = console.live.post("/rank", session_id=console.session, pool="default", explain=True)[
        "ranking"
    ]
    said = console.posts.nth(1).text_content() or ""
    unsaid = [candidate for candidate in ranked if candidate["text"] not in said]
    assert len(unsaid) < len(ranked)
    for place, candidate in enumerate(unsaid[:6]):
        parts = [shown(part, 2) for part in candidate["contributions"]]
        cells = console.page.locator("#why tbody tr").nth(place).locator(".cell")
        expect(cells).to_have_text(parts)
        console.candidates.nth(place).click()
        expect(console.page.locator(".utterance .part")).to_have_text(parts)


def test_the_picture_of_the_score_matrix_has_a_line_a_candidate(console: Console) -> None:
    console.say("Hello there")
    console.candidates.first.press("Enter")
    expect(console.posts).to_have_count(2)
    console.say("My parcel has not come.")
    lines = console.page.locator("#scores g.line")
    ends = console.page.get_by_role("list", name="Candidates of the picture").get_by_role("button")
    expect(console.page.locator("#scores .tick")).to_have_count(3)
    assert lines.count() == ends.count() >= 6
    ids = [line.get_attribute("data-id") for line in lines.all()]
    matrix = console.live.get(f"/sessions/{console.session}/scores", ids=ids)
    expect(lines.first.locator("circle")).to_have_count(len(matrix["turns"]))
    console.page.get_by_text("Numbers", exact=True).click()
    table = console.page.locator("#scores tbody tr")
    cells = {row.locator("th").get_attribute("title"): row.locator("td") for row in table.all()}
    for column, id_ in enumerate(matrix["ids"]):
        expected = [shown(line[column]) for line in matrix["scores"]]
        expect(cells[REPLIES[int(str(id_)[1:])]]).to_have_text(expected)


def test_a_goal_moves_candidates_and_what_is_avoided_removes_some(console: Console) -> None:
    console.say("My parcel has not come.")
    console.view("Goals")
    console.page.get_by_label("Goal", exact=True).last.fill("Thank you!")
    after = console.page.get_by_role("list", name="Toward the goal").get_by_role("listitem")
    expect(after).to_have_count(len(REPLIES))
    asked = {
        "session_id": console.session,
        "pool": "default",
        "fit_weight": 0.2,
        "goals": [{"text": "Thank you!", "speaker": "user"}],
    }
    ranking = console.live.post("/rank", **asked)["ranking"]
    expect(after.locator(".text")).to_have_text([item["text"] for item in ranking])
    console.page.get_by_role("button", name="Add an utterance to avoid").click()
    console.page.get_by_label("Avoid", exact=True).last.fill("This is outrageous.")
    reach = console.live.post(
        "/rank", **asked | {"goals": [{"text": "This is outrageous.", "speaker": "user"}]}
    )
    reached = sorted(item["goals"][0] for item in reach["ranking"])
    low, high = max(pairwise(reached), key=lambda pair: pair[1] - pair[0])
    threshold = f"{(low + high) / 2:.2f}"
    console.page.locator("#avoid input[type=range]").fill(threshold)
    gone = sum(number >= float(threshold) for number in reached)
    assert 0 < gone < len(REPLIES)
    removed = console.page.locator("#rejected li")
    expect(removed).to_have_count(gone)
    expect(after).to_have_count(len(REPLIES) - gone)
    words = f"leads to This is outrageous.: reachability {reached[-1]:.2f}"
    expect(removed.first).to_contain_text(words)


def test_goals_are_dragged_in_moved_by_keys_and_ordered(console: Console) -> None:
    console.say("My parcel has not come.")
    console.view("Plan")
    page = console.page
    goals = page.locator("#plan-goals .text")
    page.locator(".turn").first.drag_to(page.locator("#plan-goals"))
    expect(goals).to_have_text(["My parcel has not come."])
    idea = page.locator("#ideas .text").first.inner_text()
    page.locator("#ideas li").first.drag_to(page.locator("#plan-goals"), target_position=BOTTOM)
    expect(goals).to_have_text(["My parcel has not come.", idea])
    page.get_by_placeholder("Another goal").fill("Goodbye")
    page.keyboard.press("Enter")
    page.get_by_label("Move up: Goodbye").focus()
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    expect(goals).to_have_text(["Goodbye", "My parcel has not come.", idea])
    page.get_by_role("button", name="Order them").click()
    texts = goals.all_inner_texts()
    plan = console.live.post(
        "/plan",
        session_id=console.session,
        top=5,
        method="chain_curved",
        goals=[{"id": str(place + 1), "text": text} for place, text in enumerate(texts)],
    )
    orders = page.get_by_role("list", name="Orders, best first").get_by_role("button")
    expect(orders).to_have_count(len(plan["orders"]))
    for line, order in zip(orders.all(), plan["orders"], strict=True):
        expect(line.locator("b")).to_have_text(order["order"])
        expect(line.locator(".score")).to_have_text(shown(order["score"]))
    expect(page.locator("#orders g.order")).to_have_count(len(plan["orders"]))
    expect(page.locator("#orders g.order.bright circle")).to_have_count(3)
    page.locator("#plan-goals li").nth(2).drag_to(page.locator("#plan-goals"), target_position=TOP)
    expect(goals).to_have_text([idea, "Goodbye", "My parcel has not come."])


def test_a_pool_is_uploaded_and_deleted(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "greetings.csv"
    texts = [f"Greeting number {number}" for number in range(60)]
    file.write_text("\n".join(["Answer", *texts]))
    console.view("Pools")
    page = console.page
    page.get_by_placeholder("a new name").fill("greetings")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#upload-words")).to_contain_text("Version 1: 60 new or changed")
    expect(page.locator("#upload-words")).to_contain_text('text from "Answer"')
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "1")
    row = page.get_by_role("row").filter(has_text="greetings")
    expect(row).to_contain_text("60")
    page.get_by_label("Delete greetings").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert console.live.get("/pools/greetings")["size"] == 60
    page.get_by_label("Delete greetings").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    assert [pool["name"] for pool in console.live.get("/pools")["pools"]] == ["default"]


def test_an_upload_that_fails_leaves_no_new_pool(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "faq.csv"
    file.write_text("Frage,Antwort\nWann?,Heute.\n")
    console.view("Pools")
    page = console.page
    page.get_by_placeholder("a new name").fill("fragen")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("faq.csv, line 1: no text among")
    assert [pool["name"] for pool in console.live.get("/pools")["pools"]] == ["default"]


def test_the_latency_panel_counts_what_happens(own: Live, console_of: OpenConsole) -> None:
    console = console_of(own).open()
    console.say("Hello there", "Is anybody there?")
    console.view("Latency")
    console.page.get_by_label("Over the last").select_option("since the start")
    turns = console.page.get_by_role("row").filter(has_text="POST /sessions/{session_id}/turn")
    expect(turns).to_contain_text(re.compile(r"\d ms"))
    written = console.page.get_by_role("row").filter(has_text="write the session")
    expect(written.get_by_role("cell").first).to_have_text("2")


QUANTILE = """async ([text, q]) => {
  const { quantile, samples, seen } = await import("/console/prometheus.js");
  return quantile(seen(null, samples(text), "x", { a: "b" }), q);
}"""
QUANTILES = [
    ([0, 0, 0], 0.5, None),
    ([4, 4, 4], 0.5, 0.5),  # evenly within the first bucket
    ([2, 4, 4], 0.5, 1.0),
    ([2, 4, 4], 0.75, 2.0),
    ([0, 0, 3], 0.95, 3.0),  # beyond the last bound nothing is known
]


def test_a_quantile_lies_evenly_within_its_bucket(console: Console) -> None:
    for counts, q, expected in QUANTILES:
        buckets = zip(["1.0", "3.0", "+Inf"], counts, strict=True)
        lines = [f'x_bucket{{a="b",le="{le}"}} {n}.0' for le, n in buckets]
        given = ["\n".join(["# HELP x {}", *lines, ""]), q]
        assert console.page.evaluate(QUANTILE, given) == expected, (counts, q)


@pytest.mark.nightly
def test_the_documentation_tries_operations(live: Live, console_of: OpenConsole) -> None:
    docs = console_of(live)
    docs.page.goto(f"{live.url}/docs")
    operation = docs.page.locator("#operations-operation-livez")
    operation.get_by_role("button").first.click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table")).to_contain_text('"alive": true')


def test_with_api_keys_the_page_asks_for_one(launch: Launch, console_of: OpenConsole) -> None:
    live = launch(api_keys=[api_key("shop")])
    live.http.headers["Authorization"] = "Bearer shop"
    live.fill()
    console = console_of(live).open("pools")
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_label("Key").fill("wrong")
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog).to_contain_text("does not know this key")
    dialog.get_by_label("Key").fill("shop")
    dialog.get_by_role("button", name="Use it").click()
    expect(console.page.get_by_role("row").filter(has_text="default")).to_be_visible()
    console.view("Replies")
    console.say("Hello there")
    expect(console.candidates).to_have_count(6)
    assert console.page.evaluate("localStorage.length + document.cookie.length") == 0
    assert "shop" in console.page.evaluate("Object.values(sessionStorage)")


def test_a_double_click_says_it_once(console: Console) -> None:
    console.page.get_by_label("Message").fill("Hello there")
    console.page.get_by_role("button", name="Send").dblclick()
    expect(console.posts).to_have_count(1)
    console.idle()
    console.page.locator("#candidates [data-use]").first.dblclick()
    expect(console.posts).to_have_count(2)
    console.idle()
    assert [speaker for speaker, _ in console.transcript] == ["user", "bot"]


@pytest.mark.parametrize("fault", [lost_once, overloaded_once])
def test_a_turn_that_met_a_fault_is_sent_again_and_nothing_is_said_twice(
    console: Console, fault: Callable[[Route], None]
) -> None:
    console.page.route("**/turn", fault)
    console.say("Hello there")
    expect(console.candidates).to_have_count(6)
    assert console.transcript == [("user", "Hello there")]


def test_what_is_searched_set_and_said_while_the_page_still_loads_arrives(
    live: Live, console_of: OpenConsole
) -> None:
    console = console_of(live)
    held = list[Route]()

    def go_on() -> None:
        assert held
        while held:
            held.pop().continue_()

    console.page.route("**/pools", lambda route: held.append(route))  # noqa: PLW0108 - needs a function
    with console.page.expect_request("**/pools"):
        console.open("pools")
    enter(console.page.locator("#search-text"), "Hello there")
    expect(console.page.locator("#found .text").first).to_be_visible()
    console.view("Replies")
    candidates = console.page.get_by_role("spinbutton", name="Candidates")
    candidates.fill("3")
    console.type("Hello there")
    go_on()
    expect(console.posts).to_have_count(1)
    expect(console.candidates).to_have_count(3)
    assert console.transcript == [("user", "Hello there")]
    with console.page.expect_request("**/pools"):
        console.page.reload()
    candidates.fill("2")
    console.type("And now?")
    go_on()
    expect(console.posts).to_have_text(["Hello there", "And now?"])
    expect(console.candidates).to_have_count(2)


def test_when_somebody_else_goes_on_the_text_is_kept_and_the_session_shown(
    console: Console,
) -> None:
    console.say("Hello there")
    console.live.turn(console.session, "bot", "Hi, how can I help?")
    console.type("Is anybody there?")
    console.problem("The session has new turns from elsewhere")
    expect(console.posts).to_have_text(["Hello there", "Hi, how can I help?"])
    expect(console.page.get_by_label("Message")).to_have_value("Is anybody there?")
    console.page.keyboard.press("Enter")
    expect(console.posts).to_have_count(3)
    console.idle()
    assert console.transcript[2] == ("user", "Is anybody there?")


@pytest.fixture
def timed(live: Live, console_of: OpenConsole) -> Console:
    """A console that need not wait for its next look at the health of the service."""
    console = console_of(live)
    console.page.clock.install()
    return console.open()


def test_a_service_that_stops_is_told_in_words(timed: Console) -> None:
    console = timed
    console.say("Hello there")
    console.page.route("**/*", lambda route: route.abort())
    console.type("Are you there?")
    console.problem("The service cannot be reached. Is it running?")
    expect(console.page.get_by_label("Message")).to_have_value("Are you there?")
    console.page.clock.fast_forward(HEALTH_MS)
    expect(console.page.locator("#health-words")).to_have_text("Unreachable")
    console.page.unroute_all(behavior="wait")
    expect(console.page.locator("#health-words")).to_have_text("Ready")
    console.page.get_by_role("button", name="Send").click()
    expect(console.posts).to_have_count(2)


def test_what_had_arrived_although_no_answer_came_is_not_said_again(timed: Console) -> None:
    console = timed

    def lost(route: Route) -> None:
        if "/turn" in route.request.url:
            route.fetch()
        route.abort()

    console.page.route("**/*", lost)
    console.type("Hello there")
    console.problem("The service cannot be reached")
    console.page.clock.fast_forward(HEALTH_MS)
    expect(console.page.locator("#health-words")).to_have_text("Unreachable")
    console.page.unroute_all(behavior="wait")
    expect(console.posts).to_have_text(["Hello there"])
    expect(console.page.get_by_label("Message")).to_have_value("")
    expect(console.candidates).to_have_count(6)
    assert console.transcript == [("user", "Hello there")]


def test_texts_are_never_markup(console: Console) -> None:
    console.live.fill([MARKUP, "שלום, איך אפשר לעזור?", "🎉" * 20, "x" * 300])
    console.page.get_by_role("spinbutton", name="Candidates").fill("10")
    console.say(MARKUP)
    expect(console.posts).to_have_text([MARKUP])
    expect(console.page.locator("#candidates .text").filter(has_text="<b>bold</b>")).to_be_visible()
    expect(console.page.locator("img:not([src='console/icon.svg'])")).to_have_count(0)
    expect(console.page).to_have_title("Turnwise")


def test_a_reload_goes_on_where_the_session_stands(console: Console) -> None:
    console.say("Hello there")
    texts = console.page.locator("#candidates .text").all_inner_texts()
    session = console.session
    console.page.reload()
    expect(console.posts).to_have_text(["Hello there"])
    expect(console.page.locator("#candidates .text")).to_have_text(texts)
    assert console.session == session
    console.page.get_by_role("button", name="New session").click()
    expect(console.posts).to_have_count(0)
    assert console.session != session


def test_a_link_to_a_view_shows_its_top(live: Live, console_of: OpenConsole) -> None:
    console = console_of(live, viewport={"width": 1000, "height": 400}).open("pools")
    expect(console.page.get_by_label("Delete default")).to_be_visible()
    for view in VIEWS:
        console.view(view)
        console.view(view)
        assert console.page.evaluate("scrollY") == 0, view


def test_filters_of_the_turns_and_of_the_session_hold_and_wrong_ones_say_why(
    console: Console,
) -> None:
    with_metadata(console.live)
    console.say("Hello there")
    ids = console.page.locator("#candidates .reply")
    expect(ids).to_have_count(6)
    where = console.page.locator("#where")
    carried = console.page.locator("#session-where")
    show_filters(console)
    enter(where, '{"topic": {"like": "even"}}')
    expect(console.page.get_by_role("alert")).to_contain_text("topic, like: is not a condition")
    expect(where).to_have_attribute("aria-invalid", "true")
    enter(where, '{"topic": "even"}')
    expect(ids).to_have_count(4)
    expect(console.page.get_by_role("alert")).to_have_count(0)
    enter(carried, '{"place": ')
    expect(console.page.get_by_role("alert")).to_contain_text("not JSON")
    enter(carried, '{"place": {"gte": 4}}')
    expect(ids).to_have_count(2)
    assert console.live.get(f"/sessions/{console.session}")["where"] == {"place": {"gte": 4}}
    console.page.reload()
    expect(ids).to_have_count(2)
    expect(where).to_have_value('{"topic":"even"}')
    expect(carried).to_have_value('{"place":{"gte":4}}')
    console.say("Anybody?")
    expect(ids).to_have_count(2)
    show_filters(console)
    enter(carried, "")
    expect(ids).to_have_count(4)
    assert console.live.get(f"/sessions/{console.session}")["where"] is None


def test_what_would_come_first_is_shown_while_the_user_types(console: Console) -> None:
    preview = console.page.locator("#preview")
    field = console.page.get_by_label("Message")
    field.press_sequentially("Where is my")
    best = console.live.turn("t", "user", "Where is my", top_k=1)["candidates"][0]["text"]
    expect(preview).to_contain_text(f"First: {best}")
    assert console.live.http.get(f"/sessions/{console.session}").status_code == 404
    console.page.get_by_text("Bot", exact=True).click()
    field.press_sequentially(" parcel?")
    expect(preview).to_be_hidden()
    console.page.get_by_text("User", exact=True).click()
    console.say("Where is my parcel?")
    expect(preview).to_be_hidden()
    assert console.transcript == [("user", "Where is my parcel?")]


def test_a_reply_that_was_said_is_offered_again_only_if_it_may_be(console: Console) -> None:
    texts = console.candidates.locator(".text")
    console.page.get_by_role("spinbutton", name="Candidates").fill("10")
    console.say("Hello there")
    expect(console.candidates).to_have_count(len(REPLIES))
    said = texts.first.inner_text()
    console.candidates.first.press("Enter")
    expect(console.posts).to_have_count(2)
    console.say("And now?")
    expect(console.candidates).to_have_count(len(REPLIES) - 1)
    left = texts.all_inner_texts()
    assert said not in left
    console.page.reload()
    expect(texts).to_have_text(left)
    console.page.get_by_label("Repeats").select_option("allowed")
    expect(console.candidates).to_have_count(len(REPLIES))


def test_a_candidate_shows_its_group_its_body_and_the_example_that_found_it(
    console: Console,
) -> None:
    console.live.give_examples()
    first = {"id": "r0", "text": REPLIES[0], "group": "answer", "body": "A page."}
    items = [first | {"examples": [QUESTIONS[0]]}]
    console.live.put("/pools/default/candidates", items)
    console.page.get_by_role("spinbutton", name="Candidates").fill("10")
    console.say(QUESTIONS[0])
    expect(console.candidates).to_have_count(len(REPLIES) - 1)
    expect(console.candidates.first).to_contain_text(f"{REPLIES[0]}group answer")
    expect(console.candidates.first.locator(".matched q")).to_have_text(QUESTIONS[0])
    expect(console.candidates.first.locator(".body")).to_have_text("A page.")
    marked = console.page.locator("#why .by-example")
    expect(marked.first).to_have_attribute("title", re.compile(re.escape(QUESTIONS[0])))
    console.page.get_by_label("Wordings").select_option("all")
    expect(console.candidates).to_have_count(len(REPLIES))


def test_what_becomes_of_candidates_is_told_to_the_service(console: Console) -> None:
    console.say("Where is my parcel?")
    texts = {place: console.candidates.nth(place).locator(".text").inner_text() for place in (0, 1)}
    reject = console.page.get_by_role("button", name=f"Reject: {texts[0]}")
    reject.click()
    expect(reject).to_be_disabled()
    edited = console.candidates.nth(1).get_attribute("data-id")
    console.page.get_by_role("button", name=f"Edit: {texts[1]}").click()
    console.say("It is on its way.")
    console.say("Thank you!")
    last = console.candidates.nth(2).locator(".text").inner_text()
    chosen = console.candidates.nth(2).get_attribute("data-id")
    console.page.get_by_role("button", name=f"Use: {last}").click()
    expect(console.posts).to_have_count(4)
    console.idle()

    def feedback() -> list[tuple[int, str, str | None, int]]:
        kept = console.live.get(f"/sessions/{console.session}")["feedback"]
        return [(each["turn"], each["event"], each["text"], each["rank"]) for each in kept]

    eventually(lambda: len(feedback()) == 3)
    assert feedback() == [
        (1, "rejected", None, 1),
        (1, "edited", "It is on its way.", 2),
        (3, "chosen", None, 3),
    ]
    said = console.live.get(f"/sessions/{console.session}")["transcript"]
    assert [turn.get("candidate") for turn in said] == [None, edited, None, chosen]


def test_a_choice_teaches_the_pool_if_the_box_is_ticked(console: Console) -> None:
    console.page.get_by_label("Choices teach the pool").check()
    console.say("Has the lorry left?")
    chosen = console.candidates.first.locator(".text").inner_text()
    console.page.get_by_role("button", name=f"Use: {chosen}").click()
    expect(console.posts).to_have_count(2)

    def learned() -> list[str]:
        found = console.live.get("/pools/default/learned")["learned"]
        return [each["text"] for each in found]

    eventually(lambda: learned() == ["Has the lorry left?"])
