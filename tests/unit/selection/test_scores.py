from collections.abc import Sequence
from typing import cast
from zlib import crc32

import numpy as np
import pytest

from tests.unit.selection.pool import DIMENSION, random_units
from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.roles import Relation, Role, RoleText, relation_to
from turnwise.models.scores import Aggregation
from turnwise.service.selection.context import Context, Contexts
from turnwise.service.selection.scores import Candidates, score_goals, score_next_utterances
from turnwise.service.wire.ranking import Goal

pytestmark = pytest.mark.anyio

NONE = np.empty((0, DIMENSION), np.float32)


def encode(text: str, role: Role, relation: Relation | None) -> Float32:
    """A vector that differs for each text, role and relation."""
    return random_units(1, crc32(f"{text} {role} {relation}".encode()))[0]


class HashedContexts:
    """Encodes with `encode`; counts the texts, and the speakers that the context is relative to."""

    def __init__(self) -> None:
        self.texts = 0
        self.speakers = set[str]()

    async def encode_for_heads(self, context: Context) -> Context:
        return context

    async def encode_pairs(self, context: Context, speaker: str) -> tuple[Float32, Float32]:
        self.speakers.add(speaker)
        first, second = (
            np.stack([encode(u.text, role, relation_to(u.speaker, speaker)) for u in said])
            for role, said in ((Role.FIRST, context.utterances), (Role.SECOND, context.utterances))
        )
        return first, second

    async def encode_first(self, context: Context, speaker: str) -> Float32:
        return (await self.encode_pairs(context, speaker))[0]

    async def encode_texts(self, inputs: Sequence[RoleText]) -> Float32:
        self.texts += len(inputs)
        vectors = [encode(each.text, each.role, each.relation) for each in inputs]
        return np.stack(vectors) if vectors else NONE

    async def encode_candidates(self, inputs: Sequence[RoleText], after: None) -> Float32:
        return await self.encode_texts(inputs)


def make_context(*said: tuple[str, str]) -> Context:
    utterances = tuple(Utterance(speaker, text) for speaker, text in said)
    return Context(utterances, "bot", NONE, NONE, [])


CONTEXT = make_context(("user", "Hello"), ("bot", "Hi"), ("user", "My parcel is late"))
CANDIDATES = Candidates([None] * 4, ["a", "b", "c", "d"], ["bot", "user", "agent", "guest"])


async def test_next_utterances_are_scored_relative_to_their_speakers() -> None:
    contexts = cast(Contexts, HashedContexts())
    scored = await score_next_utterances(
        contexts, CONTEXT, CANDIDATES, Aggregation("mean"), explain=True
    )
    for index, (text, speaker) in enumerate(
        zip(CANDIDATES.texts, CANDIDATES.speakers, strict=True)
    ):
        relations = [relation_to(each.speaker, speaker) for each in CONTEXT.utterances]
        texts = [each.text for each in CONTEXT.utterances]
        expected = 0.0
        for j in range(3):
            for i in range(j):
                first = encode(texts[i], Role.FIRST, relations[i]).astype(np.float64)
                second = encode(texts[j], Role.SECOND, relations[j]).astype(np.float64)
                mean = (first + second) / np.linalg.norm(first + second)
                expected += float(mean @ encode(text, Role.AFTER, None))
        assert scored.scores[index] == pytest.approx(expected, abs=1e-5)
        assert scored.contributions is not None
        assert scored.contributions[index].sum() == pytest.approx(expected, abs=1e-5)


async def test_the_reachability_of_goals_is_equation_4() -> None:
    goals = [Goal(text="g", speaker="user"), Goal(text="h"), Goal(text="i", speaker="nobody")]
    contexts = cast(Contexts, HashedContexts())
    reach = await score_goals(contexts, CONTEXT, CANDIDATES, goals)
    assert reach.shape == (4, 3)
    for column, goal in enumerate(goals):
        to = goal.speaker or "bot"
        after = encode(goal.text, Role.AFTER, None).astype(np.float64)
        for index, (text, speaker) in enumerate(
            zip(CANDIDATES.texts, CANDIDATES.speakers, strict=True)
        ):
            second = encode(text, Role.SECOND, relation_to(speaker, to)).astype(np.float64)
            pairs = []
            for said in CONTEXT.utterances:
                first = encode(said.text, Role.FIRST, relation_to(said.speaker, to))
                mean = (first + second) / np.linalg.norm(first + second)
                pairs.append(mean @ after)
            expected = float(second @ after + np.mean(pairs))
            assert reach[index, column] == pytest.approx(expected, abs=1e-5)


async def test_speakers_who_have_said_nothing_share_their_vectors() -> None:
    contexts = HashedContexts()
    goals = [Goal(text=f"goal {index}", speaker=f"stranger {index}") for index in range(20)]
    await score_goals(cast(Contexts, contexts), CONTEXT, CANDIDATES, goals)
    assert contexts.texts == len(goals) + len(CANDIDATES.texts)
    assert len(contexts.speakers) == 1
