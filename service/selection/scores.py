"""Scores candidates of a ranking: how well each follows the context and nears each goal."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs
from turnwise.models.scores import Aggregation, reachability
from turnwise.service.pools import Hit
from turnwise.service.selection.context import Context, Contexts
from turnwise.service.wire.ranking import Avoided, Goal


@dataclass(frozen=True, slots=True)
class Candidates:
    """C candidates of a ranking, column by column.

    Attributes:
        ids: Their ids in the pool, or those that the request gives.
        texts: Their texts.
        speakers: The speakers who would say them.
        hits: Their hits in the pool; None if the request gives the candidates.
        after: (C, d) their [AFTER]; None where the pool is not the encoder's, or the request gives
            the candidates.
    """

    ids: list[str | None]
    texts: list[str]
    speakers: list[str]
    hits: list[Hit] | None = None
    after: Float32 | None = None


@dataclass(frozen=True, slots=True)
class NextUtteranceScores:
    """Next-utterance scores (C,) and, where requested, contributions (C, n) to them."""

    scores: Float32
    contributions: Float32 | None = None


async def score_next_utterances(
    contexts: Contexts,
    context: Context,
    candidates: Candidates,
    aggregation: Aggregation,
    *,
    explain: bool,
) -> NextUtteranceScores:
    """Score candidates by C3L eq. 3, by MaxSim, or as CCL does for an encoder without pairs.

    Args:
        contexts: Encodes the candidates, and the context relative to each speaker.
        context: n ≥ 1 utterances.
        candidates: C candidates.
        aggregation: The aggregation of the context.
        explain: Whether to compute contributions.
    """
    after = candidates.after
    if after is None:
        after = await contexts.encode_texts(candidate_inputs(candidates.texts))
    scores = np.empty(len(after), np.float32)
    parts = np.empty((len(after), len(context.utterances)), np.float32)
    context = await contexts.encode_for_heads(context)
    speakers = _unify_strangers(context, candidates.speakers)
    for speaker in dict.fromkeys(speakers):
        indices = _indices_of(speakers, speaker)
        some = after[indices]
        first, second = await contexts.encode_pairs(context, speaker)
        scores[indices] = await asyncio.to_thread(aggregation.scores, first, second, some)
        if explain:
            part = await asyncio.to_thread(aggregation.contributions, first, second, some)
            parts[indices] = part.T
    return NextUtteranceScores(scores, parts if explain else None)


async def score_goals(
    contexts: Contexts,
    context: Context,
    candidates: Candidates,
    goals: Sequence[Goal] | Sequence[Avoided],
) -> Float32:
    """Return the reachability (C, G) of each goal from each candidate (C3L eq. 4)."""
    reach = np.empty((len(candidates.texts), len(goals)), np.float32)
    if not goals:
        return reach
    context = await contexts.encode_for_heads(context)
    goal_speakers = [context.name_speaker(goal.speaker) for goal in goals]
    speakers = _unify_strangers(context, goal_speakers, candidates.speakers)
    after = await contexts.encode_texts(candidate_inputs(goal.text for goal in goals))
    by_relation = {
        relation: await _encode_in_relation(contexts, candidates, relation, set(speakers))
        for relation in (Relation.SAME, Relation.OTHER)
    }
    for speaker in dict.fromkeys(speakers):
        first = await contexts.encode_first(context, speaker)
        is_same = np.array([said_by == speaker for said_by in candidates.speakers])
        second = np.where(is_same[:, None], by_relation[Relation.SAME], by_relation[Relation.OTHER])
        indices = _indices_of(speakers, speaker)
        reach[:, indices] = await asyncio.to_thread(reachability, first, second, after[indices])
    return reach


async def _encode_in_relation(
    contexts: Contexts, candidates: Candidates, relation: Relation, speakers: set[str]
) -> Float32:
    """Return [B2] (C, d) of the candidates that have a relation to at least one of the speakers.

    The rows of the others are zero. A candidate is encoded at most once in each relation, however
    many speakers there are.
    """

    def has_relation(said_by: str) -> bool:
        if relation is Relation.SAME:
            return said_by in speakers
        return speakers != {said_by}  # at least one of them is another speaker

    indices = [i for i, said_by in enumerate(candidates.speakers) if has_relation(said_by)]
    inputs = [RoleText(candidates.texts[index], Role.SECOND, relation) for index in indices]
    after = None if candidates.after is None else candidates.after[indices]
    encoded = await contexts.encode_candidates(inputs, after)
    vectors = np.zeros((len(candidates.texts), encoded.shape[1]), np.float32)
    vectors[indices] = encoded
    return vectors


def _unify_strangers(
    context: Context, speakers: Sequence[str], said_by: Sequence[str] = ()
) -> list[str]:
    """Return the speakers, with one name for all who have said nothing (the strangers).

    Relative to any stranger, every text is by another speaker. So one of them can represent all,
    and the texts are encoded only once. It is the responder if possible: a session keeps vectors
    relative to it.

    Args:
        context: The utterances.
        speakers: The names to replace.
        said_by: The speakers of the texts outside of the context.
    """
    known = {utterance.speaker for utterance in context.utterances} | {*said_by}
    strangers = (name for name in (context.responder, *speakers) if name not in known)
    stranger = next(strangers, "")
    return [name if name in known else stranger for name in speakers]


def _indices_of(speakers: Sequence[str], speaker: str) -> list[int]:
    return [index for index, name in enumerate(speakers) if name == speaker]
