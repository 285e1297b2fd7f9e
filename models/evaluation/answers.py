"""Answers: is the right answer first when some phrasings of its question are its examples?

Each answer has phrasings of its question. A trial draws some of them as the examples of the answer
and asks others. In pools that are partly covered, only some of the answers have examples. Questions
outside, which no answer fits, show whether the confidence tells them from the others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.confidence import Spread, features
from turnwise.models.data import Record, read_label, read_records
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.metrics import (
    Indices,
    Mask,
    Metrics,
    auroc,
    calibration_error,
    median_ms,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.fusion import NO_EXAMPLE, Fusion
from turnwise.models.roles import Relation, Role, RoleText, said_inputs
from turnwise.models.texts import write_count

DRAWS = 10
"""Trials of each row; each trial draws other examples."""
ASKED = 20
"""Most questions of an answer in a trial."""
OUTSIDE = -1
"""The index of the right answer of a question that no answer fits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and phrasings of its question."""

    id: str
    text: str
    questions: tuple[str, ...]


def read_answers(files: Iterable[str | Path]) -> list[Answer]:
    """Read `{"id", "texts", "examples"}` a line; of several wordings the first is the candidate's.

    Raises:
        DataError: A file cannot be read or holds something else, or there is only one answer.
    """
    files = list(files)
    answers = [read_answer(record) for file in files for record in read_records(file)]
    if len(answers) < 2:
        raise DataError("fewer than two answers", ", ".join(map(str, files)))
    return answers


def read_answer(record: Record) -> Answer:
    """Return the answer of `{"id", "texts", "examples"}`; raises DataError if it is not one."""
    return Answer(read_label(record, "id"), record.texts("texts")[0], record.texts("examples"))


def read_questions(files: Iterable[str | Path]) -> list[str]:
    """Read `{"text"}` a line.

    Raises:
        DataError: A file cannot be read or holds something else.
    """
    return [record.text("text") for file in files for record in read_records(file)]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedAnswers:
    """Answers in the vectors of one encoder.

    Attributes:
        replies: (C, d) of the texts of the answers.
        questions: For each answer (q, 2, d) of its phrasings: each as a running query, and as it is
            compared with examples.
        outside: (m, 2, d) of questions that no answer fits.
    """

    replies: Float32
    questions: tuple[Float32, ...]
    outside: Float32

    def draw_trial(self, examples: int, covered: float, seed: int, reserved: int = 0) -> "Trial":
        """Draw examples, and ask the other phrasings.

        Args:
            examples: Examples of a covered answer, as far as it keeps a phrasing to be asked.
            covered: Share of the answers that have examples.
            seed: Equal seeds draw the same phrasings in the same order, whatever their number is.
            reserved: Phrasings that are not asked even where fewer are examples, so that trials
                with other numbers of examples ask the same.
        """
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(len(phrasings)) for phrasings in self.questions]
        covered_answers = draw_covered(len(self.replies), covered, rng)
        asked: list[Float32] = []
        known: list[Float32] = []
        owners: list[int] = []
        for answer, (order, phrasings) in enumerate(zip(orders, self.questions, strict=True)):
            most = len(order) - 1  # one phrasing is left to be asked
            first = min(max(examples, reserved), most)
            rest = phrasings[order[first : first + ASKED]]
            asked.append(rest)
            owners += [answer] * len(rest)
            drawn = min(examples, most) if covered_answers[answer] else 0
            known.append(phrasings[order[:drawn], 1])
        questions = np.concatenate([*asked, self.outside])
        right = np.array(owners + [OUTSIDE] * len(self.outside))
        contexts = Contexts.of_questions(questions, right, len(self.replies))
        return make_trial(contexts, self.replies, known, covered_answers)


def draw_covered(count: int, covered: float, rng: np.random.Generator) -> Mask:
    """Return which (count,) answers have examples: the share `covered` of them."""
    drawn = np.zeros(count, np.bool_)
    drawn[rng.permutation(count)[: round(count * covered)]] = True
    return drawn


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """n contexts that are searched for.

    Attributes:
        queries: (n, d) running queries.
        newest: (n, d) newest utterances, as examples are encoded.
        utterances: (n,) numbers of utterances.
        left_out: (n, C) answers that a search does not offer.
        right: (n,) index of the right answer, or `OUTSIDE`.
    """

    queries: Float32
    newest: Float32
    utterances: Indices
    left_out: Mask
    right: Indices

    @classmethod
    def of_questions(cls, questions: Float32, right: Indices, answers: int) -> Self:
        """Return contexts of one question (n, 2, d) each, after which all answers are offered."""
        count = len(questions)
        left_out = np.zeros((count, answers), np.bool_)
        utterances = np.ones(count, np.intp)
        return cls(questions[:, 0], questions[:, 1], utterances, left_out, right)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The scores of n contexts over C answers, which have N examples in all.

    Attributes:
        contexts: The contexts.
        replies: (n, C) reply scores.
        examples: (n, C) example scores, `NO_EXAMPLE` for an answer without examples.
        of_replies: n spreads of the reply scores.
        of_examples: n spreads of the cosines with all examples; none without examples.
        covered: (C,) which answers have examples, if there are any.
    """

    contexts: Contexts
    replies: Float64
    examples: Float64
    of_replies: tuple[Spread, ...]
    of_examples: tuple[Spread, ...]
    covered: Mask

    @property
    def right(self) -> Indices:
        """(n,) index of the right answer, or `OUTSIDE`."""
        return self.contexts.right

    @property
    def has_examples(self) -> bool:
        """Whether any answer has examples."""
        return bool(self.of_examples)

    def scores(self, fusion: Fusion) -> Float64:
        """Return the scores (n, C) that order the answers; -inf where one is left out."""
        scores = self.replies
        if self.has_examples:
            rows = zip(
                self.replies,
                self.examples,
                self.of_replies,
                self.of_examples,
                self.contexts.utterances.tolist(),
                strict=True,
            )
            scores = np.stack([fusion.scores(*row) for row in rows])
        return np.where(self.contexts.left_out, -np.inf, scores)


def make_trial(
    contexts: Contexts, replies: Float32, known: Sequence[Float32], covered: Mask
) -> Trial:
    """Return the trial of contexts over C answers.

    Args:
        contexts: The contexts.
        replies: (C, d) of the answers.
        known: For each answer (q, d) of its examples.
        covered: (C,) as in `Trial`.
    """
    scores = (contexts.queries @ replies.T).astype(np.float64)
    best = np.full(scores.shape, NO_EXAMPLE)
    owners = np.repeat(np.arange(len(known)), [len(examples) for examples in known])
    spreads: tuple[Spread, ...] = ()
    if len(owners):
        cosines = (contexts.newest @ np.concatenate(known).T).astype(np.float64)
        np.maximum.at(best.T, owners, cosines.T)
        spreads = _spreads(cosines)
    return Trial(contexts, scores, best, _spreads(scores), spreads, covered)


def add_replies(trial: Trial, replies: Float32) -> Trial:
    """Return a trial with more answers (m, d), which have no examples and are never right."""
    scores = np.hstack([trial.replies, (trial.contexts.queries @ replies.T).astype(np.float64)])
    added = (len(scores), len(replies))
    left_out = np.hstack([trial.contexts.left_out, np.zeros(added, np.bool_)])
    return Trial(
        contexts=replace(trial.contexts, left_out=left_out),
        replies=scores,
        examples=np.hstack([trial.examples, np.full(added, NO_EXAMPLE)]),
        of_replies=_spreads(scores),
        of_examples=trial.of_examples,
        covered=np.concatenate([trial.covered, np.zeros(len(replies), np.bool_)]),
    )


def _spreads(scores: Float64) -> tuple[Spread, ...]:
    return tuple(Spread(row.mean(), row.std(), len(row)) for row in scores)


def encode_answers(
    encoder: UtteranceEncoder, answers: Sequence[Answer], outside: Sequence[str] = ()
) -> EncodedAnswers:
    """Encode answers as candidates, and questions as the newest utterance of another speaker."""
    questions = [question for answer in answers for question in answer.questions]
    texts = [*questions, *outside]
    as_queries = [RoleText(text, Role.SECOND, Relation.OTHER) for text in texts]
    queries, said = np.split(encoder.encode_in_roles([*as_queries, *said_inputs(texts)]), 2)
    ends = np.cumsum([len(answer.questions) for answer in answers])
    asked = np.stack([queries, encoder.as_examples(said)], axis=1)
    *of_answers, of_outside = np.split(asked, ends)
    replies = encoder.encode([answer.text for answer in answers], Role.AFTER)
    return EncodedAnswers(replies, tuple(of_answers), of_outside)


@dataclass(frozen=True, slots=True, eq=False)
class FirstAnswers:
    """The first answers to n questions.

    Attributes:
        features: (n, k) as `models.confidence.features` returns them, of the fused scores.
        example: (n,) example score of the first answer.
        candidates: (n,) number of answers that were searched.
        utterances: (n,) number of utterances of the context.
        right: (n,) whether it is the right one.
        rank: (n,) rank of the right answer; the number of answers of a question outside.
        outside: (n,) whether no answer fits.
    """

    features: Float64
    example: Float64
    candidates: Indices
    utterances: Indices
    right: Mask
    rank: Indices
    outside: Mask


def find_first_answers(trial: Trial, fusion: Fusion) -> FirstAnswers:
    """Return what a trial finds first, by fused scores; the right answer loses a tie."""
    scores = trial.scores(fusion)
    order = np.argsort(-scores, axis=1, kind="stable")
    first = order[:, 0]
    second = order[:, 1]
    questions = np.arange(len(scores))
    inside = trial.right != OUTSIDE
    of_right = scores[questions, trial.right]  # of no use where the question is outside
    rank = np.where(inside, (scores >= of_right[:, None]).sum(axis=1), scores.shape[1])
    norms = np.linalg.norm(trial.contexts.queries, axis=1)
    rows = [
        features(
            scores[number, first[number]],
            scores[number, second[number]],
            spread,
            norms[number],
            trial.contexts.utterances[number],
        )
        for number, spread in enumerate(trial.of_replies)
    ]
    return FirstAnswers(
        features=np.stack(rows),
        example=trial.examples[questions, first],
        candidates=np.array([spread.candidates for spread in trial.of_replies]),
        utterances=trial.contexts.utterances,
        right=inside & (rank == 1),
        rank=rank,
        outside=~inside,
    )


def compute_confidence(
    encoder: UtteranceEncoder, firsts: FirstAnswers, *, examples: bool
) -> Float64 | None:
    """Return the confidences (n,); None if the model has no calibration.

    Args:
        encoder: The model.
        firsts: The first answers.
        examples: Whether the pool has examples.
    """
    if encoder.calibration is None:
        return None
    plain = encoder.calibration.confidence(firsts.features)
    if not examples or encoder.example_calibration is None:
        return plain
    return encoder.example_calibration.confidence(
        plain, firsts.example, firsts.candidates, firsts.utterances
    )


def evaluate_answers(
    models: Mapping[str, UtteranceEncoder],
    answers: Sequence[Answer],
    outside: Sequence[str],
    examples: Sequence[int],
    covered: float = 1.0,
    *,
    others: Sequence[str] = (),
) -> Iterator[Row]:
    """Evaluate models with several numbers of examples, over `DRAWS` trials each.

    Args:
        models: The models by their names in the table.
        answers: A pool.
        outside: Questions that no answer of the pool fits; may be empty.
        examples: Numbers of examples of an answer.
        covered: Share of the answers that have examples.
        others: Texts of more answers, which have no examples and which nobody asks for.

    Yields:
        For each model a row a number. Metrics are R@1, R@3 and MRR of the questions that have an
        answer. With a calibration there are those of the confidence: the calibration error and the
        AUROC of right first answers over all questions, and the AUROC of questions that have an
        answer against those outside.

    Raises:
        TurnwiseError: There are fewer than two answers, or one has a single phrasing, so that none
            is left to be asked.
    """
    if len(answers) < 2:
        raise TurnwiseError("fewer than two answers with at least two examples")
    if lonely := [answer.id for answer in answers if len(answer.questions) < 2]:
        raise TurnwiseError(f"answer '{lonely[0]}' needs at least two examples")
    for label, model in models.items():
        encoded = encode_answers(model, answers, outside)
        replies = model.encode(others, Role.AFTER)
        for count in examples:
            name = f"{label} · {name_examples(count, covered)}"
            most = max(examples)
            trials = [encoded.draw_trial(count, covered, seed, most) for seed in range(DRAWS)]
            if others:
                trials = [add_replies(trial, replies) for trial in trials]
            yield measure_trials(name, model, trials)


def name_examples(count: int, covered: float) -> str:
    """Return a name such as "3 examples for 50%"."""
    share = f" for {covered:.0%}" if count and covered < 1 else ""
    return f"{write_count(count, 'example')}{share}"


def measure_trials(name: str, model: UtteranceEncoder, trials: Sequence[Trial]) -> Row:
    """Return the row of trials over one pool, with the metrics of `evaluate_answers`."""
    found = [find_first_answers(trial, model.fusion) for trial in trials]
    inside = np.concatenate([~each.outside for each in found])
    right = np.concatenate([each.right for each in found])
    ranks = np.concatenate([each.rank for each in found])[inside]
    metrics = {
        "r@1": float((ranks == 1).mean()),
        "r@3": float((ranks <= 3).mean()),
        "mrr": float((1 / ranks).mean()),
    }
    confidences = [
        compute_confidence(model, each, examples=trial.has_examples)
        for each, trial in zip(found, trials, strict=True)
    ]
    known = [each for each in confidences if each is not None]
    if known:
        metrics |= _confidence_metrics(np.concatenate(known), right, inside)
    answers = np.concatenate([trial.right for trial in trials])[inside]
    outcomes = Outcomes((ranks == 1).astype(np.float64), np.full(len(ranks), "all"), answers)
    ms = median_ms(lambda _: trials[0].scores(model.fusion), 1) / len(trials[0].right)
    return Row(name, metrics, ms, outcomes)


def _confidence_metrics(confidence: Float64, right: Mask, inside: Mask) -> Metrics:
    areas = {"auroc": auroc(confidence, right), "auroc_outside": auroc(confidence, inside)}
    known = {name: area for name, area in areas.items() if area is not None}
    return {"calibration_error": calibration_error(confidence, right), **known}
