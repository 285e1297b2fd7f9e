"""The page *Pools*: what a product owner does with the candidates of a pool."""

from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.service.console.conftest import Console, OpenConsole
from tests.support.service import Live
from turnwise.service.use_cases import learning

CITIES = ["Bonn", "Rome"]
ITEMS: list[dict[str, Any]] = [
    {
        "id": f"r{number:02}",
        "text": f"Reply number {number}.",
        "metadata": {"city": CITIES[number % 2], "price": number % 3},
        "examples": ["How can I pay?"] if number == 3 else [],
    }
    for number in range(45)
]


@pytest.fixture
def shop(live: Live) -> Live:
    live.make_pool("shop", ITEMS)
    return live


@pytest.fixture
def pools(shop: Live, console_of: OpenConsole) -> Console:
    console = console_of(shop).open("pools")
    console.page.locator("#browse-pool").select_option("shop")
    expect(console.page.locator("#browse-facts")).to_have_text("1 to 20 of 45")
    return console


def rows(console: Console) -> Locator:
    return console.page.locator("#browsed .candidate")


def open_candidate(console: Console, id: str) -> Locator:
    console.page.locator(f"#browsed [data-id={id}]").click()
    dialog = console.page.get_by_role("dialog", name="Candidate")
    expect(dialog).to_be_visible()
    return dialog


def test_candidates_are_browsed_searched_and_filtered_by_menus(pools: Console) -> None:
    page = pools.page
    facts = page.locator("#browse-facts")
    page.get_by_role("button", name="Next page").click()
    page.get_by_role("button", name="Next page").click()
    expect(facts).to_have_text("41 to 45 of 45")
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    page.get_by_role("button", name="Previous page").click()
    expect(facts).to_have_text("21 to 40 of 45")
    page.get_by_label("city").select_option("Rome (22)")
    expect(facts).to_have_text("1 to 20 of 22")
    page.get_by_label("price").select_option("0 (15)")
    expect(facts).to_have_text("1 to 7 of 7")
    page.get_by_placeholder("Search in texts").fill("PAY")
    expect(rows(pools)).to_have_text(["Reply number 3.r03 · 1 exampleRome"])
    page.get_by_placeholder("Search in texts").fill("nothing of the kind")
    expect(page.locator("#browsed")).to_contain_text("No candidate matches")


def test_a_candidate_is_changed_field_by_field(pools: Console) -> None:
    dialog = open_candidate(pools, "r03")
    dialog.get_by_label("Text", exact=True).fill("By card.")
    dialog.get_by_role("button", name="Remove the example: How can I pay?").click()
    for example in ("Cash?", "Cheque?"):
        dialog.get_by_role("button", name="Add an example").click()
        dialog.get_by_label("Example", exact=True).last.fill(example)
    dialog.get_by_label("Group").fill("paying")
    dialog.get_by_role("button", name="Add a field").click()
    dialog.get_by_label("Field", exact=True).last.fill("open")
    dialog.get_by_label("Value", exact=True).last.fill("true")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    expect(rows(pools).filter(has_text="By card.")).to_contain_text("group paying · 2 examples")
    assert pools.live.get("/pools/shop/candidates/r03") == {
        "id": "r03",
        "text": "By card.",
        "metadata": {"city": "Rome", "price": 0, "open": True},
        "group": "paying",
        "examples": ["Cash?", "Cheque?"],
        "learned": [],
    }


def test_a_learned_example_is_shown_and_forgotten(
    pools: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "NEAR_COPY", 2.0)  # to the tiny model short texts are alike
    turn = pools.live.turn("s", "user", "Do you take Maestro?", pool="shop", top_k=50)["turn"]
    assert pools.live.feedback("r03", "chosen", turn=turn, learn=True)["learned"]
    dialog = open_candidate(pools, "r03")
    expect(dialog.locator("#candidate-learned")).to_contain_text("Do you take Maestro?")
    dialog.get_by_label("forget").check()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    assert pools.live.get("/pools/shop/candidates/r03")["learned"] == []


def test_a_candidate_is_added_once_and_deleted(pools: Console) -> None:
    page = pools.page
    page.get_by_role("button", name="Add a candidate").click()
    dialog = page.get_by_role("dialog", name="New candidate")
    dialog.get_by_label("Text", exact=True).fill("Reply number 3.")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has this text already")
    dialog.get_by_label("Text", exact=True).fill("A new reply.")
    dialog.get_by_label("Id").fill("a-new-one")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    expect(rows(pools).first).to_contain_text("A new reply.")
    dialog = open_candidate(pools, "a-new-one")
    dialog.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name="Delete this candidate?").get_by_text("Delete").last.click()
    expect(rows(pools).first).to_contain_text("Reply number 0.")
    assert pools.live.get("/pools/shop")["size"] == len(ITEMS)


def test_a_message_is_tried_and_the_threshold_saved(pools: Console) -> None:
    page = pools.page
    page.get_by_label("city").select_option("Rome (22)")
    expect(page.locator("#browse-facts")).to_have_text("1 to 20 of 22")
    page.get_by_label("What a user says").fill("How can I pay?")
    page.get_by_role("button", name="Try it").click()
    found = page.locator("#found > li")
    expect(found).to_have_count(8)
    asked = {
        "context": [{"speaker": "user", "text": "How can I pay?"}],
        "pool": "shop",
        "where": {"city": "Rome"},
        "top_k": 8,
    }
    ranking = pools.live.post("/rank", **asked)["ranking"]
    expect(found.locator(".text")).to_have_text([each["text"] for each in ranking])
    slider = page.get_by_role("slider", name="Offer nothing below")
    save = page.get_by_role("button", name="Save for this pool")
    for value, kept in (("1", 1.0), ("0", None)):
        slider.fill(value)
        save.click()
        expect(save).to_be_disabled()
        assert pools.live.get("/pools/shop")["min_confidence"] == kept
    found.first.get_by_role("button", name="Add what the user says").click()
    dialog = page.get_by_role("dialog", name="Candidate")
    expect(dialog.get_by_label("Example", exact=True).last).to_have_value("How can I pay?")


def test_examples_that_somebody_else_added_meanwhile_stay(pools: Console) -> None:
    dialog = open_candidate(pools, "r03")
    other = {"add_examples": ["Cheque?"]}
    pools.live.ok(pools.live.http.patch("/pools/shop/candidates/r03", json=other))
    dialog.get_by_role("button", name="Add an example").click()
    dialog.get_by_label("Example", exact=True).last.fill("Cash?")
    dialog.get_by_role("button", name="Remove the example: How can I pay?").click()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    examples = pools.live.get("/pools/shop/candidates/r03")["examples"]
    assert examples == ["Cheque?", "Cash?"]


def test_a_file_with_other_columns_and_another_encoding_is_uploaded(pools: Console) -> None:
    page = pools.page
    table = "Frage;Antwort;Nr\nWo ist der Käse?;Im Kühlschrank.;k1\n".encode("cp1252")
    page.locator("#upload-pool").fill("kitchen")
    file: Any = {"name": "kitchen.csv", "mimeType": "text/csv", "buffer": table}
    page.locator("#upload-file").set_input_files(file)
    page.get_by_text("Columns and encoding").click()
    page.get_by_label("Column of the texts").fill("Antwort")
    page.get_by_label("Column of the examples").fill("Frage")
    page.get_by_label("Column of the ids").fill("Nr")
    page.get_by_label("Encoding").fill("cp1252")
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#upload-words")).to_contain_text("Version 1: 1 new or changed")
    expect(page.locator("#browse-pool")).to_have_value("kitchen")
    expect(rows(pools)).to_have_count(1)
    expect(rows(pools)).to_contain_text("Im Kühlschrank.")
    page.get_by_role("button", name="Use the pool shop").click()
    expect(page.locator("#browse-pool")).to_have_value("shop")
    (candidate,) = pools.live.get("/pools/kitchen/candidates")["candidates"]
    assert (candidate["id"], candidate["text"]) == ("k1", "Im Kühlschrank.")
    assert candidate["examples"] == ["Wo ist der Käse?"]
