"""Conversational similarity (GiCCS): how alike two texts are, alone and in the same context.

It has two tasks. The first is how well a system's scores of pairs correlate with people's. The
second is multiple choice: a system chooses the text that it finds most similar to the last turn.
The candidates of an example are texts that its speaker might say in its context.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.data import Record, Utterance, read_records
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.bm25 import plain_words
from turnwise.models.evaluation.language_model import (
    Language,
    LanguageModel,
    PromptStyle,
    write_prompt,
)
from turnwise.models.evaluation.metrics import (
    FEWEST_PAIRS,
    Indices,
    Mask,
    Metrics,
    Scores,
    pearson,
    ranks_of,
    spearman,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import (
    Context,
    VectorTable,
    next_speaker,
    read_context,
)
from turnwise.models.evaluation.systems import (
    System,
    encode_from_left,
    example_ms,
    linear_system,
    one_by_one,
    scores_of,
)
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText, context_inputs
from turnwise.models.scores import row

Models = Mapping[str, UtteranceEncoder | PairwiseModel]
Embed = Callable[[Sequence[Context]], Float32]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences in one context, and how similar people find them.

    Attributes:
        said: The first sentence, in the context.
        other: The second sentence.
        score: Higher is more similar, on any scale.
        domain: The topic of the dialogue; "" if the file names none.
        where: File and line.
    """

    said: Context
    other: str
    score: float
    domain: str
    where: str

    @property
    def candidates(self) -> tuple[str, ...]:
        """The texts to compare the first sentence with."""
        return (self.other,)


@dataclass(frozen=True, slots=True)
class Question:
    """A last turn and choices; one choice is most similar to it.

    Attributes:
        said: The last turn, in its context.
        candidates: The choices.
        answer: Index of the right one.
        domain: The topic of the dialogue; "" if the file names none.
        where: File and line.
    """

    said: Context
    candidates: tuple[str, ...]
    answer: int
    domain: str
    where: str


def read_pairs(paths: Sequence[str | Path], limit: int | None = None) -> list[Pair]:
    """Read similarity files as one, or their first `limit` pairs.

    A line is `{"context": [...], "sentence1", "sentence2", "score", "domain"?}`. An utterance of
    the context, which may be empty, is a text or `{"speaker", "text"}`; where speakers are not
    given, they alternate. The speaker of the last utterance does not say the sentences; the other
    one does.

    Raises:
        DataError: A file cannot be read or does not hold such pairs, or there is none.
    """
    return [_read_pair(record) for record in _read_records(paths, limit)]


def read_questions(paths: Sequence[str | Path], limit: int | None = None) -> list[Question]:
    """Read files of multiple-choice questions as one, or their first `limit` questions.

    A line is `{"context": [...], "choices": [...], "answer": 0, "domain"?}`. `answer` is the index
    of the choice that is most similar to the last utterance of the context.

    Raises:
        DataError: A file cannot be read or does not hold such questions, or there is none.
    """
    return [_read_question(record) for record in _read_records(paths, limit)]


def texts_of_examples(examples: Iterable[Pair | Question]) -> Iterator[tuple[str, str]]:
    """Yield each text with its file, line and field."""
    for item in examples:
        yield from ((text, f'{item.where}, field "{field}"') for text, field in _locate_texts(item))


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Examples of either task over one pool of candidates.

    Attributes:
        said: N texts, each in its context.
        pool: Distinct candidates, each in the context of its example.
        candidates: For each example the indices (C,) of its candidates in the pool.
    """

    said: tuple[Context, ...]
    pool: tuple[Context, ...]
    candidates: tuple[Indices, ...]

    @property
    def with_context(self) -> bool:
        """Whether any example has a context."""
        return any(item.utterances for item in self.said)


def make_comparisons(examples: Sequence[Pair | Question]) -> Comparisons:
    """Return examples over one pool."""
    own = [
        [_replace_target(example.said, text) for text in example.candidates] for example in examples
    ]
    distinct = dict.fromkeys(chain.from_iterable(own))
    index_of = {item: index for index, item in enumerate(distinct)}
    return Comparisons(
        said=tuple(example.said for example in examples),
        pool=tuple(distinct),
        candidates=tuple(np.array([index_of[item] for item in items]) for items in own),
    )


def evaluate_similarity(models: Models, pairs: Sequence[Pair]) -> Iterator[Row]:
    """Evaluate all systems of the models, after word overlap.

    Args:
        models: The models by their names in the table.
        pairs: At least one. If none has a context, the systems that read it are left out.

    Yields:
        A row for each system: Pearson's and Spearman's correlation with people's scores, over all
        pairs, by domain and by length of the context; and the median milliseconds to compare one
        pair. A correlation is left out where fewer than three pairs, or a constant, leave it
        undefined.
    """
    data = make_comparisons(pairs)
    for system in similarity_systems(models, data):
        scores = np.concatenate(_score_all(system, data)).astype(np.float64)
        yield Row(system.name, _correlate(pairs, scores), example_ms(system, data.candidates))


def evaluate_choices(models: Models, questions: Sequence[Question]) -> Iterator[Row]:
    """Evaluate chance, and the systems of `evaluate_similarity`, on multiple-choice questions.

    Args:
        models: The models by their names in the table.
        questions: At least one.

    Yields:
        A row for chance, and one for each system: the accuracy over all questions, by domain and by
        length of the context, and the median milliseconds of a question.
    """
    chance = np.array([1 / len(question.candidates) for question in questions])
    yield Row("chance", {"accuracy": float(chance.mean())}, 0.0, _outcomes(chance))
    data = make_comparisons(questions)
    for system in similarity_systems(models, data):
        yield _measure_choices(system, questions, data)


def evaluate_language_models(
    models: Mapping[str, LanguageModel],
    questions: Sequence[Question],
    language: Language,
    style: PromptStyle = "rephrase",
) -> Iterator[Row]:
    """Evaluate language models: the choice that goes best after the prompt.

    Args:
        models: The models by their names in the table.
        questions: At least one.
        language: Language of the prompt.
        style: The prompt.

    Yields:
        Rows as above, with and without the context, by the log-likelihood of the whole choice,
        which prefers short ones, and by the mean log-likelihood of its tokens.
    """
    data = make_comparisons(questions)

    def listed(question: Question) -> Sequence[str]:
        return question.candidates if style == "list" else ()

    for label, model in models.items():
        prompts = [write_prompt(q.said, language, choices=listed(q)) for q in questions]
        model.warn_of_long(prompts, [question.where for question in questions])
        for with_context in (False, True):
            prompts = [
                write_prompt(q.said, language, with_context=with_context, choices=listed(q))
                for q in questions
            ]
            of = "with context" if with_context else "alone"
            for system in language_model_systems(model, prompts, data):
                named = replace(system, name=f"{label} · {of}, {system.name}")
                yield _measure_choices(named, questions, data)


def similarity_systems(models: Models, data: Comparisons) -> Iterator[System]:
    """Yield all systems by their names in the table, word overlap first."""
    yield word_overlap(data)
    for label, model in models.items():
        for system in cosine_systems(model, data):
            yield replace(system, name=f"{label} · {system.name}")


def word_overlap(data: Comparisons) -> System:
    """Return the share of two texts' distinct words that both have (Jaccard)."""

    def words(said: Context) -> set[str]:
        return set(plain_words(said.target.text))

    def shared(first: set[str], second: set[str]) -> float:
        return len(first & second) / max(len(first | second), 1)

    def score(example: int, candidates: Indices) -> Float32:
        own = words(data.said[example])
        return np.array([shared(own, words(data.pool[p])) for p in candidates], np.float32)

    return System("word overlap", one_by_one(score))


def cosine_systems(model: UtteranceEncoder | PairwiseModel, data: Comparisons) -> list[System]:
    """Return the cosines of a model's vectors, in context only if there is a context.

    - single: of the text alone; of the context and the text joined to one text.
    - curved: as candidates, a; as utterances, b, said by another speaker than the one who answers;
      in context, of mean_i b_i + b.
    - with pairs: as candidates, a; as utterances, b2; in context, of the rows that they would add
      to the running query, Σ_i (b1_i + b2)/‖b1_i + b2‖: two utterances are alike in a context as
      far as they move the next reply alike.
    - pairwise: as responses; as a context of one utterance; in context, as the contexts that end
      with the text.
    """

    def system(name: str, embed: Embed) -> System:
        def work(example: int) -> Float32:
            candidates = [data.pool[index] for index in data.candidates[example]]
            return embed([data.said[example], *candidates])

        return linear_system(name, embed(data.said), embed(data.pool), work)

    found = _list_embeddings(model)
    return [system(e.name, e.embed) for e in found if data.with_context or not e.reads_context]


def language_model_systems(
    model: LanguageModel, prompts: Sequence[str], data: Comparisons
) -> Iterator[System]:
    """Yield the log-likelihood of a whole candidate after its prompt, and the mean of its tokens.

    Args:
        model: The model.
        prompts: One for each example.
        data: The examples; only their own candidates can be scored.
    """

    def score(examples: Sequence[int]) -> tuple[Float64, Float64]:
        pairs = [(n, data.pool[index]) for n in examples for index in data.candidates[n]]
        return model.log_likelihoods([prompts[n] for n, _ in pairs], _targets(x for _, x in pairs))

    whole, tokens = score(range(len(data.said)))
    keys = [(n, int(candidate)) for n, own in enumerate(data.candidates) for candidate in own]
    for name, values in (("whole", whole), ("a token", whole / np.maximum(tokens, 1))):
        by_key = dict(zip(keys, values.tolist(), strict=True))
        yield System(name, one_by_one(partial(_look_up, by_key)), lambda n: score([n]))


def _look_up(by_key: Mapping[tuple[int, int], float], example: int, candidates: Indices) -> Scores:
    """Return the scores (C,) of an example's candidates."""
    return np.array([by_key[example, int(candidate)] for candidate in candidates])


def check_scores(pairs: Sequence[Pair]) -> None:
    """Check that something could correlate with people's scores.

    Raises:
        TurnwiseError: There are too few, or all are the same.
    """
    scores = np.array([pair.score for pair in pairs])
    if pearson(scores, scores) is None:
        raise TurnwiseError(f"a correlation needs {FEWEST_PAIRS} pairs and scores that differ")


def _read_records(paths: Sequence[str | Path], limit: int | None) -> list[Record]:
    records = list(islice(chain.from_iterable(map(read_records, paths)), limit))
    if not records:
        raise DataError("no example in it", ", ".join(map(str, paths)))
    return records


def _read_pair(record: Record) -> Pair:
    context = () if record.get("context") == [] else read_context(record, "context")
    speaker = next_speaker(context) if context else "A"
    return Pair(
        said=Context(context, Utterance(speaker, record.text("sentence1"))),
        other=record.text("sentence2"),
        score=record.number("score"),
        domain=_read_domain(record),
        where=record.where,
    )


def _read_question(record: Record) -> Question:
    *context, last = read_context(record, "context")
    choices = record.texts("choices")
    answer = record.get("answer")
    if len(choices) < 2:
        raise record.error("choices", "expected at least two")
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(choices):
        raise record.error("answer", f"expected a whole number from 0 to {len(choices) - 1}")
    return Question(
        Context(tuple(context), last), choices, answer, _read_domain(record), record.where
    )


def _read_domain(record: Record) -> str:
    return record.text("domain") if record.fields.get("domain") is not None else ""


def _locate_texts(item: Pair | Question) -> Iterator[tuple[str, str]]:
    yield from ((text, "context") for text in item.said.texts)
    if isinstance(item, Pair):
        yield from ((item.said.target.text, "sentence1"), (item.other, "sentence2"))
    else:
        yield (item.said.target.text, "context")
        yield from ((text, "choices") for text in item.candidates)


class _Embedding(NamedTuple):
    """Vectors (n, d) of n texts in their contexts."""

    name: str
    embed: Embed
    reads_context: bool = False


def _list_embeddings(model: UtteranceEncoder | PairwiseModel) -> list[_Embedding]:
    if isinstance(model, PairwiseModel):
        return _name_embeddings(
            lambda said: model.encode_responses(_targets(said)),
            lambda said: model.encode_contexts([[item.target.text] for item in said]),
            lambda said: model.encode_contexts([_with_target(item) for item in said]),
        )
    if model.kind is EncoderKind.SINGLE:
        return [
            _Embedding("alone", lambda said: model.encode(_targets(said), Role.AFTER)),
            _Embedding(
                "joined to the context",
                lambda said: encode_from_left(model, [" ".join(_with_target(i)) for i in said]),
                reads_context=True,
            ),
        ]
    return _name_embeddings(
        lambda said: model.encode(_targets(said), Role.AFTER),
        lambda said: model.encode(_targets(said), Role.SAID),
        lambda said: _embed_in_context(model, said),
    )


def _name_embeddings(
    as_candidate: Embed, as_utterance: Embed, in_context: Embed
) -> list[_Embedding]:
    return [
        _Embedding("as candidates", as_candidate),
        _Embedding("as utterances", as_utterance),
        _Embedding("in context", in_context, reads_context=True),
    ]


def _embed_in_context(encoder: UtteranceEncoder, said: Sequence[Context]) -> Float32:
    paired = encoder.kind.paired
    mix = row if paired else _add_mean
    role = Role.FIRST if paired else Role.SECOND
    before = [context_inputs(item.utterances, role, _who_answers(item)) for item in said]
    own = [RoleText(item.target.text, Role.SECOND, Relation.OTHER) for item in said]
    table = VectorTable(encoder, [*own, *(item for inputs in before for item in inputs)])
    mixed = [mix(table[inputs], new) for inputs, new in zip(before, table[own], strict=True)]
    return _normalise(np.stack(mixed))


def _replace_target(said: Context, text: str) -> Context:
    return replace(said, target=replace(said.target, text=text))


def _targets(said: Iterable[Context]) -> list[str]:
    return [item.target.text for item in said]


def _with_target(said: Context) -> list[str]:
    return [*said.texts, said.target.text]


def _add_mean(before: Float32, new: Float32) -> Float32:
    mixed: Float32 = before.mean(axis=0) + new if len(before) else new
    return mixed


def _normalise(vectors: Float32) -> Float32:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32 = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit


def _who_answers(said: Context) -> str:
    """Return who answers the target: the speaker of the last utterance, or anybody else."""
    return said.utterances[-1].speaker if said.utterances else f"not {said.target.speaker}"


def _score_all(system: System, data: Comparisons) -> list[Scores]:
    return [scores_of(system, n, own) for n, own in enumerate(data.candidates)]


def _correlate(pairs: Sequence[Pair], similar: Float64) -> Metrics:
    scores = np.array([pair.score for pair in pairs])
    groups = {"": np.ones(len(pairs), np.bool_), **_group_examples(pairs)}
    measured = {
        f"{metric}/{group}" if group else metric: correlate(similar[those], scores[those])
        for metric, correlate in (("pearson", pearson), ("spearman", spearman))
        for group, those in groups.items()
    }
    return {name: value for name, value in measured.items() if value is not None}


def _measure_choices(system: System, questions: Sequence[Question], data: Comparisons) -> Row:
    """Return the row of a system; a tie for the first rank is right in part."""
    answers = [question.answer for question in questions]
    right = ranks_of(_score_all(system, data), answers).within(1)
    metrics = {"accuracy": float(right.mean())}
    by_group = {
        f"accuracy/{group}": float(right[those].mean())
        for group, those in _group_examples(questions).items()
    }
    ms = example_ms(system, data.candidates)
    return Row(system.name, metrics | by_group, ms, _outcomes(right))


def _outcomes(right: Float64) -> Outcomes:
    """Return the outcomes (n,) of questions. Each question counts as its own dialogue."""
    return Outcomes(right, np.full(len(right), ""), np.arange(len(right)))


def _group_examples(examples: Sequence[Pair | Question]) -> dict[str, Mask]:
    """Return which (n,) examples belong to each domain, and have each number of turns before."""
    domains = np.array([example.domain for example in examples])
    groups = {f"domain={name}": domains == name for name in sorted(set(domains.tolist())) if name}
    lengths = np.array([len(example.said.utterances) for example in examples])
    return groups | {f"turns={number}": lengths == number for number in np.unique(lengths)}
