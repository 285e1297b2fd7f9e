"""Projects of other tools, each of them tiny, and what is refused."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnwise.models.errors import DataError
from turnwise.service.candidate_files.projects import convert_project
from turnwise.service.candidate_files.projects.converted import Converted

DOMAIN = """
intents: [greet, hours, order]
responses:
  utter_greet:
    - text: Hello!
      buttons: [{title: Hours, payload: /hours}]
    - text: Hi {name}!
    - text: Hey!
      channel: slack
  utter_faq/hours:
    - text: no
  utter_picture:
    - image: https://shop.example/a.png
"""
NLU = """
nlu:
  - intent: greet
    examples: |
      - hello
      - hi from [Bonn](city)
  - intent: faq/hours
    examples: |
      - open on [Sunday]{"entity": "day"}?
  - intent: order
    examples: |
      - I want to buy it
"""
RULES = """
rules:
  - rule: greeting
    steps:
      - intent: greet
      - action: utter_greet
"""
RASA = {"domain.yml": DOMAIN, "data/nlu.yml": NLU, "data/rules.yml": RULES, "x.yml": "a: {{ b }}"}

COLANG = """
define user ask hours
  "When do you open?"
  "Until when?"

define bot inform hours
  "From nine to five."
  "We are here from nine to five."

define flow hours
  user ask hours
  bot inform hours

define flow order
  user "I want to buy it."
  $order = execute place_order
  bot "I have placed your order."
"""

INTENT = {
    "name": "hours",
    "responses": [
        {
            "messages": [
                {"type": "0", "lang": "en", "speech": ["From nine to five.", "Nine to five."]},
                {"type": 0, "lang": "de", "speech": "Von neun bis fünf."},
                {"type": 4, "payload": {"map": "x"}},
            ]
        }
    ],
}
PHRASES = [{"data": [{"text": "When do you "}, {"text": "open", "alias": "verb"}, {"text": "?"}]}]
DIALOGFLOW = {
    "agent.json": json.dumps({"language": "en"}),
    "intents/hours.json": json.dumps(INTENT),
    "intents/hours_usersays_en.json": json.dumps(PHRASES),
    "intents/none.json": json.dumps({"name": "none", "fallbackIntent": True}),
}

CQA = {
    "Assets": {
        "Qnas": [
            {
                "Id": 7,
                "Answer": "From nine to five.",
                "Questions": ["When do you open?"],
                "Metadata": {"topic": "hours"},
                "Dialog": {"IsContextOnly": True, "Prompts": [{"DisplayText": "And Sunday?"}]},
            }
        ]
    }
}
QNA = (
    "Question\tAnswer\tSource\tMetadata\tIsContextOnly\tPrompts\tQnaId\n"
    'When "open"?\tFrom nine.\\nTo five.\tEditorial\tkind:faq|for:all\tTrue\t'
    '[{"DisplayText": "And Sunday?"}]\t7\n'
    "Until when?\tFrom nine.\\nTo five.\tEditorial\tkind:faq|for:all\tTrue\t[]\t7\n"
)
LEGACY = {"qnaList": [{"id": 0, "answer": each, "questions": []} for each in ("Hi!", "Bye!")]}
ROUTES = {"routes": [{"name": "hours", "utterances": ["When do you open?"], "description": None}]}
CHATTERBOT = "categories: [talk]\nconversations:\n- - Hello\n  - Hi!\n  - Bye\n  - See you!\n"
CHATWOOT = [{"id": 1, "short_code": "hours", "content": "Hi {{contact.name}}, from nine to five."}]


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write a project; of one file, return its path."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder if len(files) > 1 else folder / next(iter(files))


def convert(folder: Path, files: dict[str, str]) -> Converted:
    return convert_project(write(folder, files))


def by_id(converted: Converted) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for record in converted.records}


def test_rasa(tmp_path: Path) -> None:
    converted = convert(tmp_path, RASA)
    found = by_id(converted)
    assert found["utter_greet"] == {
        "id": "utter_greet",
        "text": "Hello!",
        "group": "utter_greet",
        "examples": ["hello", "hi from Bonn"],
        "metadata": {
            "response": "utter_greet",
            "intent": "greet",
            "buttons": [{"title": "Hours", "payload": "/hours"}],
        },
    }
    assert found["utter_greet-2"]["examples"] == []
    assert found["utter_greet-3"]["examples"] == ["hello", "hi from Bonn"]
    assert found["utter_greet-3"]["metadata"]["channel"] == "slack"
    assert found["utter_faq/hours"]["text"] == "no"
    assert found["utter_faq/hours"]["examples"] == ["open on Sunday?"]
    assert dict(converted.left_out) == {
        "intents that lead to no response": ["order"],
        "with slots, so offered only if these have values": ["utter_greet-2"],
        "no text": ["utter_picture"],
    }


FORM = """
responses:
  utter_ask_day: [{text: Which day?}]
  utter_ask_visit_time: [{text: At what time?}]
  utter_booked: [{text: It is booked.}]
  utter_sorry: [{text: Sorry!}]
forms:
  visit:
    required_slots: [day, time]
"""
STORIES = """
stories:
  - story: the user says yes
    steps:
      - intent: book
      - action: utter_ask_day
      - intent: inform
      - action: action_look_up
      - action: utter_sorry
      - action: utter_ask_visit_time
      - or: [{intent: inform}, {intent: affirm}]
      - action: utter_booked
"""


def test_rasa_stories_and_forms_say_what_follows(tmp_path: Path) -> None:
    found = by_id(convert(tmp_path, {"domain.yml": FORM, "data/stories.yml": STORIES}))
    assert {id: record["metadata"].get("after") for id, record in found.items()} == {
        "utter_ask_day": None,
        "utter_ask_visit_time": ["utter_ask_day"],
        "utter_booked": ["utter_ask_visit_time"],
        "utter_sorry": ["utter_ask_day"],
    }


def test_rasa_1(tmp_path: Path) -> None:
    domain = "templates:\n  utter_greet:\n  - text: Hello!\n"
    nlu = "## intent:greet\n- hi from [Bonn](city)\n\n## synonym:x\n- y\n"
    (greet,) = convert(tmp_path, {"domain.yml": domain, "data/nlu.md": nlu}).records
    assert (greet["text"], greet["examples"]) == ("Hello!", ["hi from Bonn"])


def test_colang(tmp_path: Path) -> None:
    converted = convert(tmp_path, {"rails.co": COLANG})
    found = by_id(converted)
    assert found["inform hours"]["examples"] == ["When do you open?", "Until when?"]
    assert found["inform hours 2"]["group"] == found["inform hours"]["group"] == "inform hours"
    assert found["I have placed your order."]["examples"] == []
    assert list(converted.report()) == [
        "user messages that no flow answers at once: I want to buy it.",
        "steps of flows that are not messages: $order = execute place_order",
    ]


def test_colang_flows_say_what_follows(tmp_path: Path) -> None:
    flow = """
define bot ask day
  "Which day?"
define bot ask time
  "At what time?"
define bot confirm
  "It is booked."
define flow visit
  user ask for a visit
  bot ask day
  user give a day
  bot ask time
  $free = execute look_up
  bot confirm
"""
    found = by_id(convert(tmp_path, {"rails.co": flow}))
    assert {id: record["metadata"].get("after") for id, record in found.items()} == {
        "ask day": None,
        "ask time": ["ask day"],
        "confirm": None,
    }


@pytest.mark.parametrize("as_zip", [True, False])
def test_dialogflow(tmp_path: Path, as_zip: bool) -> None:
    project = write(tmp_path / "agent", DIALOGFLOW)
    if as_zip:
        project = tmp_path / "agent.zip"
        with zipfile.ZipFile(project, "w") as archive:
            for name, content in DIALOGFLOW.items():
                archive.writestr(name, content)
    converted = convert_project(project)
    assert [record["text"] for record in converted.records] == [
        "From nine to five.",
        "Nine to five.",
        "Von neun bis fünf.",
    ]
    assert [record["examples"] for record in converted.records] == [["When do you open?"], [], []]
    assert [record["metadata"]["language"] for record in converted.records] == ["en", "en", "de"]
    assert [record["group"] for record in converted.records][1:] == ["hours en", "hours de"]
    assert set(converted.left_out) == {
        "responses that are not text",
        "fallback intents (see the pool's `fallback`)",
    }


def test_a_follow_up_intent_of_dialogflow_follows_its_parent(tmp_path: Path) -> None:
    said = [{"messages": [{"type": 0, "speech": "On Sunday we are closed."}]}]
    follow_up = {"name": "sunday", "parentId": "a1", "responses": said}
    files = DIALOGFLOW | {
        "intents/hours.json": json.dumps(INTENT | {"id": "a1"}),
        "intents/sunday.json": json.dumps(follow_up),
    }
    found = by_id(convert(tmp_path, files))
    assert found["sunday"]["metadata"]["after"] == ["hours", "hours en"]
    assert "after" not in found["hours"]["metadata"]


def test_the_answer_to_a_prompt_follows_the_answer_with_the_prompt(tmp_path: Path) -> None:
    hours = {"id": 7, "answer": "From nine.", "questions": ["When?"]}
    prompts = [{"displayText": "And Sunday?", "qnaId": 8}]
    sunday = {"id": 8, "answer": "Closed.", "questions": ["Sunday?"]}
    pairs = [
        hours | {"context": {"isContextOnly": False, "prompts": prompts}},
        sunday | {"context": {"isContextOnly": True, "prompts": []}},
    ]
    converted = convert(tmp_path, {"kb.json": json.dumps({"qnaList": pairs})})
    found = by_id(converted)
    assert found["8"]["metadata"] == {"after": ["7"]}
    assert "after" not in found["7"]["metadata"]
    assert not converted.left_out


def test_custom_question_answering(tmp_path: Path) -> None:
    converted = convert(tmp_path, {"kb.json": json.dumps(CQA)})
    assert converted.records == [
        {
            "id": "7",
            "text": "From nine to five.",
            "examples": ["When do you open?"],
            "metadata": {"topic": "hours", "prompts": ["And Sunday?"]},
        }
    ]
    assert list(converted.left_out) == ["answers that need what was said before"]


def test_qna_maker(tmp_path: Path) -> None:
    converted = convert(tmp_path, {"kb.tsv": QNA})
    (answer,) = converted.records
    assert list(converted.left_out) == ["answers that need what was said before"]
    assert answer == {
        "id": "7",
        "text": "From nine.\nTo five.",
        "examples": ['When "open"?', "Until when?"],
        "metadata": {
            "source": "Editorial",
            "prompts": ["And Sunday?"],
            "kind": "faq",
            "for": "all",
        },
    }


def test_answers_that_were_not_imported_yet_have_no_id(tmp_path: Path) -> None:
    records = convert(tmp_path, {"kb.json": json.dumps(LEGACY)}).records
    assert [record.get("id") for record in records] == [None, None]


@pytest.mark.parametrize(
    "file", [("routes.json", json.dumps(ROUTES)), ("routes.yaml", yaml.safe_dump(ROUTES))]
)
def test_semantic_router(tmp_path: Path, file: tuple[str, str]) -> None:
    converted = convert(tmp_path, dict([file]))
    (route,) = converted.records
    assert (route["text"], route["examples"]) == ("hours", ["When do you open?"])
    assert list(converted.left_out) == ["replies, which routes do not have: write them"]


def test_chatterbot(tmp_path: Path) -> None:
    converted = convert(tmp_path, {"talk.yml": CHATTERBOT})
    assert [(record["text"], record["examples"]) for record in converted.records] == [
        ("Hi!", ["Hello"]),
        ("See you!", ["Bye"]),
    ]


def test_chatwoot(tmp_path: Path) -> None:
    converted = convert(tmp_path, {"canned.json": json.dumps({"payload": CHATWOOT})})
    assert [record["id"] for record in converted.records] == ["hours"]
    assert list(converted.report()) == ["to rewrite, since slots are written {name}: hours"]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"a.json": "{}"}, "a project of none of these tools: Rasa, Colang 1.0"),
        ({"a.yml": "responses: [\n"}, "a.yml, line 2: not YAML"),
        ({"a.yml": "x: &a [1]\nresponses: [*a, *a]\n"}, "line 2: not YAML: aliases are not read"),
        ({"a.yml": "responses: !!python/object/apply:os.system [x]\n"}, None),
        ({"a.json": "{"}, "a.json, line 1: not JSON"),
        ({"a.tsv": "Question\tAnswer\tPrompts\nA?\tYes.\t[\n"}, "not as QnA Maker writes it"),
    ],
)
def test_a_file_is_only_read(tmp_path: Path, files: dict[str, str], what: str | None) -> None:
    if what is None:
        assert convert(tmp_path, files).records == []
        return
    with pytest.raises(DataError) as caught:
        convert(tmp_path, files)
    assert what in str(caught.value)


def test_a_project_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: No such file"):
        convert_project(tmp_path / "nowhere")


def test_a_path_out_of_a_project_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "agent.zip", "w") as archive:
        archive.writestr("../agent.json", "{}")
    with pytest.raises(DataError, match=r"'\.\./agent\.json' leads out of the project"):
        convert_project(tmp_path / "agent.zip")
    (tmp_path / "secret.yml").write_text("responses: {}")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "domain.yml").symlink_to(tmp_path / "secret.yml")
    with pytest.raises(DataError, match=r"'domain\.yml' leads out of the project"):
        convert_project(tmp_path / "project")


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "agent.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("agent.json", b" " * ((32 << 20) + 1))
        archive.writestr("intents/a.json", "{}")
    with pytest.raises(DataError, match=r"agent\.json: more than 33554432 bytes"):
        convert_project(tmp_path / "agent.zip")


def test_a_file_of_another_shape_is_an_error(tmp_path: Path) -> None:
    files = DIALOGFLOW | {"intents/hours.json": '{"name": "hours", "responses": ["x"]}'}
    with pytest.raises(DataError, match="a file is not as Dialogflow ES writes it"):
        convert(tmp_path, files)
