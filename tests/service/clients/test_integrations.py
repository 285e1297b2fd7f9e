"""The examples with the packages that they are for, against a real service."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.messages import REPLIES, posts
from tests.support.service import Live
from turnwise.service.client import Client, GivenTurn

EXAMPLES = Path(__file__).parents[3] / "examples"
GOAL = "Thank you so much!"
Example = Callable[[str], Any]
CONTEXT = posts([("user", "Hello")])
HELLO = [GivenTurn(speaker="user", text="Hello")]
TALK = [
    "Hello",
    "Is my parcel there?",
    "Is my parcel there?",
    *(f"And {n}?" for n in range(6)),
    "a " * 1500,
]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Example:
    """From an example's name to its module."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    with Client(live.url) as client:
        yield client


def said(live: Live, session: str) -> list[tuple[str, str]]:
    return [(p["speaker"], p["text"]) for p in live.get(f"/sessions/{session}")["transcript"]]


def toward(live: Live, session: str, **fields: object) -> list[str]:
    goals = [{"text": GOAL, "speaker": "user"}]
    ranking = live.post("/rank", session_id=session, goals=goals, pool="default", **fields)
    return [ranked["text"] for ranked in ranking["ranking"]]


def test_langchain_retriever_and_tool(client: Client, live: Live, example: Example) -> None:
    pytest.importorskip("langchain_core")
    langchain = example("langchain_retriever")
    session = client.session("s")
    documents = langchain.ReplyRetriever(session=session, top_k=3).invoke("Hello")
    assert said(live, "s") == [("user", "Hello")]
    scores = [document.metadata["score"] for document in documents]
    assert scores == sorted(scores, reverse=True)
    best = live.say("other", [("user", "Hello")], top_k=3)["candidates"]
    assert [document.page_content for document in documents] == [each["text"] for each in best]
    tool = langchain.steering_tool(session)
    assert tool.invoke({"goal": GOAL}) == toward(live, "s", top_k=3)
    assert "goal" in tool.args


def test_langgraph_node_says_so_when_it_has_no_reply(
    client: Client, live: Live, example: Example
) -> None:
    pytest.importorskip("langgraph")
    langgraph_node = example("langgraph_node")
    thread = {"configurable": {"thread_id": "whatsapp:+15550100"}}
    replies = []
    for part in (TALK[:5], TALK[5:]):  # a restart of the bot loses its messages
        bot = langgraph_node.graph(client)
        states = [bot.invoke({"messages": [("user", text)]}, thread) for text in part]
        replies += [state["messages"][-1].text for state in states]
    assert set(replies[: len(REPLIES)]) == set(REPLIES)
    assert replies[len(REPLIES) :] == [langgraph_node.UNSURE] * 2
    session = said(live, "whatsapp:+15550100")
    assert [text for speaker, text in session if speaker == "bot"] == replies


def test_langgraph_node_abstains_below_a_confidence(calibrated: Live, example: Example) -> None:
    pytest.importorskip("langgraph")
    langgraph_node = example("langgraph_node")
    thread = {"configurable": {"thread_id": "t"}}
    with Client(calibrated.url) as client:
        bot = langgraph_node.graph(client, min_confidence=1.0)
        state = bot.invoke({"messages": [("user", "Hello")]}, thread)
    assert state["messages"][-1].text == langgraph_node.UNSURE


def test_haystack_component_runs_in_a_pipeline_that_was_saved(
    live: Live, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    haystack = pytest.importorskip("haystack")
    from haystack.dataclasses import ChatMessage

    pipeline = haystack.Pipeline()
    selector = example("haystack_component").ReplySelector(live.url, top_k=2)
    pipeline.add_component("replies", selector)
    pipeline = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_component"])
    messages = [ChatMessage.from_system("Be kind."), ChatMessage.from_user("Hello")]
    found = []
    for inputs in ({"messages": messages}, {"messages": messages, "goal": GOAL}):
        documents = pipeline.run({"replies": inputs})["replies"]["documents"]
        found.append([document.content for document in documents])
    for used in (selector, pipeline.get_component("replies")):
        used.close()
    best = live.turn("s", "user", "Hello", top_k=2)["candidates"]
    assert found == [[candidate["text"] for candidate in best], toward(live, "s", top_k=2)]


@pytest.fixture
def _rasa_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, or where it is not installed, the three names of it that the example uses."""
    try:
        import rasa_sdk  # type: ignore[import-not-found] # noqa: F401
    except ImportError:
        package = ModuleType("rasa_sdk")
        executor = ModuleType("rasa_sdk.executor")
        vars(package).update(Action=object, Tracker=object, executor=executor)
        vars(executor).update(CollectingDispatcher=object)
        monkeypatch.setitem(sys.modules, "rasa_sdk", package)
        monkeypatch.setitem(sys.modules, "rasa_sdk.executor", executor)


@pytest.mark.usefixtures("_rasa_sdk")
@pytest.mark.parametrize("goal", [None, GOAL])
def test_rasa_action_answers_in_view_of_the_tracker(
    live: Live, example: Example, goal: str | None
) -> None:
    events = [
        {"event": "action", "name": "action_listen"},
        {"event": "user", "text": "Hello"},
        {"event": "bot", "text": "Hi, how can I help?"},
        {"event": "bot", "text": None},
        {"event": "user", "text": "Where is my parcel?"},
    ]
    uttered: list[dict[str, Any]] = []
    tracker = SimpleNamespace(events=events, get_slot={"goal": goal}.get)
    dispatcher = SimpleNamespace(utter_message=lambda **message: uttered.append(message))
    with closing(example("rasa_action").SelectReply(live.url)) as action:
        assert action.name() == "action_select_reply"
        assert action.run(dispatcher, tracker, {}) == []
    said = [("user", "Hello"), ("bot", "Hi, how can I help?"), ("user", "Where is my parcel?")]
    best = live.say("s", said, top_k=1)["candidates"][0]["text"]
    assert [message["text"] for message in uttered] == (
        toward(live, "s", top_k=1) if goal else [best]
    )


@pytest.mark.usefixtures("_rasa_sdk")
def test_rasa_action_through_a_conversation(calibrated: Live, example: Example) -> None:
    events: list[dict[str, Any]] = []
    uttered: list[dict[str, Any]] = []
    tracker = SimpleNamespace(events=events, get_slot={}.get)
    dispatcher = SimpleNamespace(utter_message=lambda **message: uttered.append(message))
    action = example("rasa_action").SelectReply

    def answer(text: str, min_confidence: float = 0.0) -> dict[str, Any]:
        events.append({"event": "user", "text": text})
        with closing(action(calibrated.url, min_confidence=min_confidence)) as select:
            select.run(dispatcher, tracker, {})
        events.append({"event": "bot", "text": uttered[-1].get("text")})
        return uttered[-1]

    answers = [answer(text)["text"] for text in TALK]
    assert all(earlier != later for earlier, later in pairwise(answers))
    events.append({"event": "restart"})
    assert answer(TALK[0])["text"] == answers[0]
    assert answer("Is it raining?", min_confidence=1.0) == {"response": "utter_default"}


def test_of_a_hundred_samples_the_one_that_leads_to_the_goal_is_first(
    client: Client, live: Live, example: Example
) -> None:
    ranked_toward = example("rerank_samples").toward
    samples = [f"Sample number {n}." for n in range(100)]
    answer = ranked_toward(client, HELLO, [*samples, samples[0]], GOAL, fit_weight=0.0)
    assert len(answer.ranking) == 100
    goals = [{"text": GOAL, "speaker": "user"}]
    best = live.post("/rank", context=CONTEXT, candidates=samples, goals=goals, top_k=1)
    assert answer.ranking[0].text == best["ranking"][0]["text"]
    reached = [ranked.goals[0] for ranked in answer.ranking]
    assert reached == sorted(reached, reverse=True)
    everything = ranked_toward(client, HELLO, samples, GOAL, avoid=GOAL)  # cannot have both
    assert {each.text for each in everything.rejected} == {
        ranked.text for ranked in answer.ranking if ranked.goals[0] > 1.2
    }
    assert len(everything.ranking) + len(everything.rejected) == 100
