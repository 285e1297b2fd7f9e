"""Short-term planning (CCL section 4, C3L section 4.2): which reply leads toward a goal.

A system scores each candidate by how well it leads to a later utterance. The reply that was really
said, and did lead there, should come first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from turnwise.models.data import Dialogue, Record, Utterance, read_id, read_records
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import (
    Indices,
    Metrics,
    Ranks,
    Scores,
    average_settings,
    median_ms,
    ranks_of,
)
from turnwise.models.evaluation.ranking import RankingExample, RankingSet, ranking_set
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import (
    Context,
    Propose,
    VectorTable,
    encode_split,
    next_speaker,
    read_context,
    said_at,
)
from turnwise.models.evaluation.systems import (
    System,
    encoder_systems,
    example_ms,
    lexical_systems,
    one_by_one,
    recommended_system,
    scores_of,
)
from turnwise.models.roles import (
    EncoderKind,
    Role,
    RoleText,
    candidate_inputs,
    context_inputs,
    relation_to,
)
from turnwise.models.scores import reachability

CANDIDATES = 100
HITS = (5, 10, 25, 50)
FIT_WEIGHT = 0.5
"""Weight of the next-utterance score in the score toward a goal: `fit_weight` of `/rank`."""


@dataclass(frozen=True, slots=True)
class ShortTermExample:
    """A context, the reply that was said, other candidates, and an utterance of some turns later.

    Attributes:
        context: The utterances before the reply, oldest first.
        candidates: Other texts that the speaker of `true` might say, at least one; `true` is not
            among them.
        true: The reply.
        goal: The utterance that was said `goal_distance` utterances after the reply.
        goal_distance: At least 1; odd where the other of two speakers says the goal.
        dialogue_id: The id of the dialogue, if it is known.
    """

    context: tuple[Utterance, ...]
    candidates: tuple[str, ...]
    true: Utterance
    goal: Utterance
    goal_distance: int
    dialogue_id: str | None = None


def make_examples(
    dialogues: Iterable[Dialogue],
    lengths: Iterable[int],
    distances: Sequence[int],
    propose: Propose,
    progress: Callable[[int, int], object] = lambda *_: None,
) -> list[ShortTermExample]:
    """Make an example for each length of a context and goal distance that a dialogue allows.

    A context for which `propose` gives nothing but the true reply has no example.

    Args:
        dialogues: The dialogues.
        lengths: Lengths of contexts.
        distances: Goal distances.
        propose: Gives the candidates.
        progress: Called with (contexts done, contexts in total) after each context: a language
            model takes many seconds for one.

    Raises:
        TurnwiseError: There is no example at all.
    """
    dialogues = list(dialogues)
    asked = [
        (dialogue, length)
        for length in lengths
        for dialogue in dialogues
        if len(dialogue.utterances) > length + min(distances)
    ]
    examples: list[ShortTermExample] = []
    for done, (dialogue, length) in enumerate(asked, start=1):
        examples += _make_examples_of(dialogue, length, distances, propose)
        progress(done, len(asked))
    if not examples:
        raise TurnwiseError(
            "no dialogue is long enough for these contexts and goal distances, or none has "
            "a candidate besides the true reply"
        )
    return examples


def retrieved_replies(
    encoder: UtteranceEncoder, dialogues: Iterable[Dialogue], lengths: Iterable[int]
) -> Propose:
    """Propose hard negatives: the utterances of other dialogues that score best for a context.

    The score is the dot product with the sum of the context's vectors: for CCL its own sum, for a
    triple encoder the bi-encoder's Σ b2_i, not the mixtures of C3L eq. 3. Every candidate is a
    plausible reply, so that only the goal distinguishes them. Utterances of the context's own
    dialogue are left out, the true reply with them.
    """
    dialogues = list(dialogues)
    pool = list(dict.fromkeys(said.text for d in dialogues for said in d.utterances))
    index_of = {text: index for index, text in enumerate(pool)}
    openings = [(d, h) for h in lengths for d in dialogues if len(d.utterances) > h]
    needed = [item for dialogue, h in openings for item in _query_inputs(dialogue, h)]
    after = candidate_inputs(pool)
    table = VectorTable(encoder, [*after, *needed])
    vectors = table[after]

    def propose(dialogue: Dialogue, length: int) -> list[str]:
        scores = vectors @ table[_query_inputs(dialogue, length)].sum(axis=0)
        scores[[index_of[said.text] for said in dialogue.utterances]] = -np.inf
        nearest = np.argsort(-scores, kind="stable")[:CANDIDATES]
        return [pool[index] for index in nearest if np.isfinite(scores[index])]

    return propose


def read_examples(path: str | Path, limit: int | None = None) -> list[ShortTermExample]:
    """Read the examples of a JSON Lines file, or the first `limit` of them.

    A line is `{"context": [...], "candidates": [...], "true", "goal", "goal_distance",
    "dialogue_id"?}`. An utterance is a string or `{"speaker", "text"}`. Where speakers are not
    given, they alternate, and the goal's follows from its distance.

    Raises:
        DataError: The file cannot be read, or does not hold such examples, or holds none.
    """
    examples = [_read_example(record) for record in islice(read_records(path), limit)]
    if not examples:
        raise DataError("no example in it", str(path))
    return examples


def texts_of_examples(examples: Iterable[ShortTermExample], file: str) -> Iterator[tuple[str, str]]:
    """Yield each text of a file's examples, with its example and field."""
    for number, example in enumerate(examples, start=1):
        fields = {
            "context": [said.text for said in example.context],
            "true": [example.true.text],
            "goal": [example.goal.text],
            "candidates": example.candidates,
        }
        for field, texts in fields.items():
            yield from ((text, f'{file}, example {number}, field "{field}"') for text in texts)


def evaluate_short_term(
    encoders: Mapping[str, UtteranceEncoder], examples: Sequence[ShortTermExample]
) -> list[Row]:
    """Evaluate all systems of the encoders, after random and BM25.

    The table also has the systems of next-utterance selection, which read the context alone ("no
    goal"). The difference shows what the goal is worth. The last system toward the goal has a
    second row, which adds `FIT_WEIGHT` of the next-utterance score that the model card recommends.

    Args:
        encoders: The encoders by their names in the table.
        examples: The examples, at least one.

    Returns:
        A row for each system: Hits@5/10/25/50 and the average rank of the true reply among it and
        the candidates, by length of the context and goal distance, over odd and over even
        distances, and over all; and the median milliseconds to encode the new texts of an example
        and to score it.
    """
    data = without_goals(examples)
    settings = np.array([_name_setting(len(e.context), e.goal_distance) for e in examples])
    result = []
    for system, shared_ms in _systems(encoders, examples, data):
        of_true = _rank_true(system, data)
        outcomes = Outcomes(of_true.expected, settings, data.split.dialogues)
        ms = shared_ms + example_ms(system, data.candidates)
        result.append(Row(system.name, _measure(of_true, examples), ms, outcomes))
    return result


def short_term_average_rank(
    encoder: UtteranceEncoder, examples: Sequence[ShortTermExample]
) -> float:
    """Return the average rank by the last system toward the goal."""
    data = without_goals(examples)
    system = goal_systems(encoder, examples, data)[-1]
    return _measure(_rank_true(system, data), examples)["average_rank"]


def without_goals(examples: Sequence[ShortTermExample]) -> RankingSet:
    """Return the examples as response selection; the true reply is the first candidate."""
    return ranking_set(
        [
            (
                RankingExample(
                    context=example.context,
                    speaker=example.true.speaker,
                    candidates=(example.true.text, *example.candidates),
                    labels=(1, *(0 for _ in example.candidates)),
                    dialogue_id=example.dialogue_id,
                ),
                "",
            )
            for example in examples
        ]
    )


def goal_systems(
    encoder: UtteranceEncoder, examples: Sequence[ShortTermExample], data: RankingSet
) -> list[System]:
    """Return the systems of an encoder that score toward the goal.

    They are cos(candidate, goal) and, for an encoder with pairs, C3L eq. 4. They score only the
    candidates of an example.
    """
    paired = encoder.kind.paired
    pool = data.split.pool
    goals = [candidate_inputs([example.goal.text]) for example in examples]
    contexts = [_first_inputs(example) if paired else [] for example in examples]
    said = [
        _reply_inputs(e, (pool[p] for p in own))
        for e, own in zip(examples, data.candidates, strict=True)
    ]
    parts = (*said, *goals, *contexts)
    table = VectorTable(encoder, [item for part in parts for item in part])
    to_mix = table
    if encoder.mixing == "raw":
        needed = [item for part in (*said, *contexts) for item in part]
        to_mix = VectorTable(encoder, needed, to_mix=True)

    def cosine(n: int, candidates: Indices) -> Scores:
        second = table[_reply_inputs(examples[n], (pool[index] for index in candidates))]
        scores: Scores = second @ table[goals[n]][0]
        return scores

    def eq_4(n: int, candidates: Indices) -> Scores:
        second = to_mix[_reply_inputs(examples[n], (pool[index] for index in candidates))]
        return reachability(to_mix[contexts[n]], second, table[goals[n]])[:, 0]

    def encode(n: int) -> VectorTable:
        return VectorTable(encoder, [*said[n], *goals[n]])

    def encode_pairs(n: int) -> VectorTable:
        return VectorTable(encoder, [*said[n], *goals[n], *contexts[n][-1:]])

    if paired:
        pairs = System("eq. 4", one_by_one(eq_4), encode_pairs)
        return [System("bi-encoder", one_by_one(cosine), encode), pairs]
    name = "cosine to goal" if encoder.kind is EncoderKind.SINGLE else "CCL"
    return [System(name, one_by_one(cosine), encode)]


def _read_example(record: Record) -> ShortTermExample:
    context = read_context(record, "context")
    distance = _read_distance(record)
    true = said_at(record, "true", record.get("true"), next_speaker(context))
    goal_speaker = context[-1].speaker if distance % 2 else true.speaker
    goal = said_at(record, "goal", record.get("goal"), goal_speaker)
    candidates = [
        record.as_text(f"candidates[{index}]", item)
        for index, item in enumerate(record.items("candidates"))
        if not (isinstance(item, str) and not item.strip())  # language models sample empty ones
    ]
    others = tuple(text for text in candidates if text != true.text)
    if not others:  # the true reply would be the first of one, whatever the system
        raise record.error("candidates", "has only the true reply")
    dialogue_id = read_id(record, "dialogue_id")
    return ShortTermExample(context, others, true, goal, distance, dialogue_id)


def _read_distance(record: Record) -> int:
    value = record.get("goal_distance")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise record.error("goal_distance", "expected a whole number from 1")
    return value


def _make_examples_of(
    dialogue: Dialogue, length: int, distances: Iterable[int], propose: Propose
) -> list[ShortTermExample]:
    said = dialogue.utterances
    true = said[length]
    candidates = tuple(text for text in propose(dialogue, length) if text != true.text)
    if not candidates:
        return []
    return [
        ShortTermExample(said[:length], candidates, true, said[length + d], d, dialogue.id)
        for d in distances
        if len(said) > length + d
    ]


def _query_inputs(dialogue: Dialogue, length: int) -> list[RoleText]:
    return Context(dialogue.utterances[:length], dialogue.utterances[length]).inputs(Role.SECOND)


def _systems(
    encoders: Mapping[str, UtteranceEncoder],
    examples: Sequence[ShortTermExample],
    data: RankingSet,
) -> Iterator[tuple[System, float]]:
    """Yield each system with the milliseconds that it shares with others, which are timed once."""
    random, bm25 = lexical_systems(data.split)
    yield random, 0.0
    yield _goal_overlap(examples, data), 0.0
    yield replace(bm25, name="BM25, no goal"), 0.0
    for label, encoder in encoders.items():
        toward = goal_systems(encoder, examples, data)
        encoded = encode_split(encoder, data.split)
        ms = _time_candidates(encoder, data)
        for system in toward:
            yield replace(system, name=f"{label} · {system.name}"), 0.0
        both = add_fit(toward[-1], recommended_system(encoded, encoder.aggregation))
        work = partial(_encode_for_both, encoder, examples, data)
        yield replace(both, name=f"{label} · {both.name}", work=work), 0.0
        for system in encoder_systems(encoded):
            yield replace(system, name=f"{label} · {system.name}, no goal"), ms


def _goal_overlap(examples: Sequence[ShortTermExample], data: RankingSet) -> System:
    index = BM25(data.split.pool)

    def score(n: int, candidates: Indices) -> Scores:
        return index.scores(examples[n].goal.text)[candidates]

    return System("BM25", one_by_one(score))


def add_fit(toward: System, fit: System) -> System:
    """Return the score toward the goal plus `FIT_WEIGHT` times the next-utterance score."""

    def scores(contexts: Indices, candidates: Indices) -> Scores:
        fits = np.float32(FIT_WEIGHT) * fit.scores(contexts, candidates)
        total: Scores = toward.scores(contexts, candidates) + fits
        return total

    return System(f"{toward.name} + {FIT_WEIGHT} · {fit.name}", scores)


def _encode_for_both(
    encoder: UtteranceEncoder, examples: Sequence[ShortTermExample], data: RankingSet, n: int
) -> None:
    """Encode the new texts of an example for both scores, which share some."""
    example = examples[n]
    context = data.split.contexts[n]
    texts = [example.true.text, *example.candidates]
    needed = [*_reply_inputs(example, texts), *candidate_inputs([*texts, example.goal.text])]
    needed += context.inputs(Role.SECOND)[-1:]
    if encoder.kind.paired:
        needed += [*context.inputs(Role.FIRST)[-1:], *_first_inputs(example)[-1:]]
    encoder.encode_in_roles(needed)


def _time_candidates(encoder: UtteranceEncoder, data: RankingSet) -> float:
    """Return the median milliseconds to encode an example's candidates as they are said next."""

    def encode(index: int) -> None:
        texts = [data.split.pool[candidate] for candidate in data.candidates[index]]
        encoder.encode(texts, Role.AFTER)

    return median_ms(encode, len(data.candidates))


def _reply_inputs(example: ShortTermExample, texts: Iterable[str]) -> list[RoleText]:
    relation = relation_to(example.true.speaker, example.goal.speaker)
    return [RoleText(text, Role.SECOND, relation) for text in texts]


def _first_inputs(example: ShortTermExample) -> list[RoleText]:
    return context_inputs(example.context, Role.FIRST, example.goal.speaker)


def _name_setting(h: int, d: int) -> str:
    return f"h={h} d={d}"


def _rank_true(system: System, data: RankingSet) -> Ranks:
    scores = (scores_of(system, n, own) for n, own in enumerate(data.candidates))
    return ranks_of(scores, [0] * len(data.candidates))


def _measure(of_true: Ranks, examples: Sequence[ShortTermExample]) -> Metrics:
    by_setting: dict[tuple[int, int], Metrics] = {}
    for h, d in sorted({(len(e.context), e.goal_distance) for e in examples}):
        here = np.array([len(e.context) == h and e.goal_distance == d for e in examples])
        chosen = of_true[here]
        by_setting[h, d] = {"average_rank": float(chosen.expected.mean()), **chosen.hits(HITS)}
    metrics = average_settings({_name_setting(h, d): those for (h, d), those in by_setting.items()})
    for parity, name in ((0, "even"), (1, "odd")):
        same_parity = [those for (_, d), those in by_setting.items() if d % 2 == parity]
        if same_parity:
            metrics |= {
                f"{key}/{name}": float(np.mean([those[key] for those in same_parity]))
                for key in same_parity[0]
            }
    return metrics
