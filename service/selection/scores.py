"""Scores candidates of a ranking: how well each follows the context and nears each goal."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.roles import Role, RoleText, candidate_inputs, relation_to
from turnwise.models.scores import Aggregation, reachability
from turnwise.service.selection.context import Context, Contexts
from turnwise.service.wire.ranking import Avoided, Goal


@dataclass(frozen=True, slots=True)
class Candidates:
    """C candidates of a ranking, column by column.

    Attributes:
        ids: Of a pool, or as the request gives them.
        texts: Their texts.
        speakers: Who would say each.
        metadata: Of candidates of a pool.
        after: (C, d) their vectors, if they are of a pool of the encoder.
        compared: (C, d) vectors to compare them with each other, where diversity asks for that.
    """

    ids: list[str | None]
    texts: list[str]
    speakers: list[str]
    metadata: list[dict[str, Any]] | None = None
    after: Float32 | None = None
    compared: Float32 | None = None


@dataclass(frozen=True, slots=True)
class NextUtteranceScores:
    """Next-utterance scores (C,) and, where requested, contributions (C, n) to them."""

    scores: Float32
    contributions: Float32 | None = None


async def next_utterance_scores(
    contexts: Contexts,
    context: Context,
    speakers: Sequence[str],
    after: Float32,
    aggregation: Aggregation,
    *,
    explain: bool,
) -> NextUtteranceScores:
    """Score candidates by C3L eq. 3, by MaxSim, or as CCL does for an encoder without pairs.

    Args:
        contexts: Encodes the context relative to each speaker.
        context: n ≥ 1 utterances.
        speakers: The speakers of the C candidates.
        after: (C, d) vectors of the candidates.
        aggregation: The aggregation of the context.
        explain: Whether to compute contributions.
    """
    scores = np.empty(len(after), np.float32)
    parts = np.empty((len(after), len(context.utterances)), np.float32)
    alike = _alike(context, speakers)
    for speaker in dict.fromkeys(alike):
        places = _places(alike, speaker)
        first, second = await contexts.encode(context, speaker)
        scores[places] = await asyncio.to_thread(aggregation.scores, first, second, after[places])
        if explain:
            part = await asyncio.to_thread(aggregation.contributions, first, second, after[places])
            parts[places] = part.T
    return NextUtteranceScores(scores, parts if explain else None)


async def goal_scores(
    contexts: Contexts,
    context: Context,
    candidates: Candidates,
    goals: Sequence[Goal] | Sequence[Avoided],
) -> Float32:
    """Return the reachability (C, G) of each goal from each candidate (C3L eq. 4)."""
    reach = np.empty((len(candidates.texts), len(goals)), np.float32)
    speakers = _alike(
        context, [goal.speaker or context.responder for goal in goals], candidates.speakers
    )
    after = await contexts.encode_texts(candidate_inputs(goal.text for goal in goals))
    for speaker in dict.fromkeys(speakers):
        first = await contexts.encode_first(context, speaker)
        second = await contexts.encode_candidates(
            [
                RoleText(text, Role.SECOND, relation_to(said_by, speaker))
                for text, said_by in zip(candidates.texts, candidates.speakers, strict=True)
            ],
            candidates.after,
        )
        places = _places(speakers, speaker)
        reach[:, places] = await asyncio.to_thread(reachability, first, second, after[places])
    return reach


def _alike(context: Context, speakers: Sequence[str], said_by: Sequence[str] = ()) -> list[str]:
    """Replace all speakers who have said nothing by one of them: to each, all texts are by others.

    Args:
        context: What was said; its vectors are known relative to its responder.
        speakers: The names to replace.
        said_by: The speakers of the other texts.
    """
    known = {said.speaker for said in context.utterances} | {*said_by}
    stranger = next((name for name in (context.responder, *speakers) if name not in known), "")
    return [name if name in known else stranger for name in speakers]


def _places(speakers: Sequence[str], speaker: str) -> list[int]:
    return [place for place, name in enumerate(speakers) if name == speaker]
