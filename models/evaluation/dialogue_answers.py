"""Answers in dialogues: is the right reply first when utterances before it are its examples?

Either the pool is the replies that recur in dialogues word for word, as a team's replies do. Some
dialogues are asked: at each of their turns whose reply is in the pool, a search should find it. The
utterances that come before the same reply in other dialogues are its examples. Or the pool is a
team's answers, and a session asks for several of them, one after the other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.answers import (
    DRAWS,
    OUTSIDE,
    Answer,
    Contexts,
    Trial,
    draw_covered,
    make_trial,
    measure_trials,
    name_examples,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.split import Context, Split, encode_split
from turnwise.models.fusion import MOST_UTTERANCES
from turnwise.models.roles import Role

REPLIES = 150
"""Most replies of a pool."""
RECURRING = 6
"""Dialogues that have a reply of the pool, at least."""
ASKED = 0.4
"""Share of the dialogues that are asked; the others give examples."""
CONTEXTS = 3
"""Most contexts of a reply, so that a frequent one counts no more than others."""
EXAMPLES = 6
"""Most examples of a reply that a trial can draw from."""
ASKED_BEFORE = 3
"""Most answers that a session asks for before the question that is measured."""


@dataclass(frozen=True, slots=True)
class DialogueAnswers:
    """A pool of recurring replies, contexts in which one of them comes next, and their examples.

    Attributes:
        split: n contexts over a pool of C replies. Nobody repeats their last utterance there.
        examples: For each reply utterances before it that are in no context.
    """

    split: Split
    examples: tuple[tuple[str, ...], ...]


def find_answers(dialogues: Sequence[Dialogue]) -> DialogueAnswers:
    """Draw a pool of replies that recur in dialogues of two speakers.

    The replies are those of the speaker who has more recurring ones. First utterances are no
    replies, and a context has more than one utterance.

    Args:
        dialogues: Dialogues of the same two speakers; equal ones give the same pool.

    Raises:
        TurnwiseError: Fewer than two replies have a context and an example.
    """
    rng = np.random.default_rng(0)
    asked = rng.random(len(dialogues)) < ASKED
    recurring = _recurring_replies(dialogues)
    contexts: list[Context] = []
    examples: dict[str, tuple[str, ...]] = {}
    for reply in rng.permutation(sorted(recurring)).tolist():
        if len(examples) == REPLIES:
            break
        turns = recurring[reply]
        shuffled = [turns[index] for index in rng.permutation(len(turns))]
        found = [
            _cut_context(dialogues[number], turn)
            for number, turn in shuffled
            if asked[number] and _is_new(dialogues[number], turn)
        ]
        said = [
            dialogues[number].utterances[turn - 1].text
            for number, turn in shuffled
            if not asked[number]
        ]
        if found and said:
            contexts += found[:CONTEXTS]
            examples[reply] = tuple(said[:EXAMPLES])
    if len(examples) < 2:
        raise TurnwiseError(f"fewer than two replies are in {RECURRING} dialogues or more")
    pool = tuple(examples)
    index_of = {reply: index for index, reply in enumerate(pool)}
    true = np.array([index_of[context.target.text] for context in contexts])
    return DialogueAnswers(Split(tuple(contexts), pool, true), tuple(examples.values()))


def ask_in_sessions(answers: Sequence[Answer], outside: Sequence[str] = ()) -> DialogueAnswers:
    """Ask for each answer after the user has asked for some others and the bot has answered.

    Examples decide later questions as they decide first ones. Dialogues in which replies recur do
    not show this, since their replies depend on each other.

    Args:
        answers: At least two answers. One of them has two phrasings of its question, or more.
        outside: Questions that no answer fits, which are asked once.
    """
    rng = np.random.default_rng(0)
    contexts: list[Context] = []
    examples: list[tuple[str, ...]] = []
    true: list[int] = []
    for index, answer in enumerate(answers):
        questions = rng.permutation(answer.questions).tolist()
        asked = questions[: min(CONTEXTS, len(questions) - 1)]
        examples.append(tuple(questions[len(asked) :][:EXAMPLES]))
        true += [index] * len(asked)
        others = [*answers[:index], *answers[index + 1 :]]
        contexts += [_draw_session(others, question, rng) for question in asked]
    contexts += [_draw_session(answers, question, rng) for question in outside]
    true += [OUTSIDE] * len(outside)
    pool = tuple(answer.text for answer in answers)
    return DialogueAnswers(Split(tuple(contexts), pool, np.array(true)), tuple(examples))


def _draw_session(answers: Sequence[Answer], question: str, rng: np.random.Generator) -> Context:
    """Return a question after questions about some of the answers, each with its answer."""
    said: list[Utterance] = []
    for index in rng.permutation(len(answers))[: rng.integers(1, ASKED_BEFORE, endpoint=True)]:
        asked = str(rng.choice(answers[index].questions))
        said += [Utterance("user", asked), Utterance("bot", answers[index].text)]
    return Context((*said, Utterance("user", question)), Utterance("bot", ""))


def _recurring_replies(dialogues: Sequence[Dialogue]) -> dict[str, list[tuple[int, int]]]:
    """Return the dialogue and the turn of each recurring reply of the speaker with more of them."""
    turns = defaultdict[Utterance, list[tuple[int, int]]](list)
    for number, dialogue in enumerate(dialogues):
        for turn, said in enumerate(dialogue.utterances[1:], 1):
            turns[Utterance(said.speaker, said.text)].append((number, turn))
    recurring = {
        said: found
        for said, found in turns.items()
        if len({number for number, _ in found}) >= RECURRING
    }
    replies = Counter(said.speaker for said in recurring)
    responder = max(sorted(replies), key=replies.__getitem__, default="")
    return {said.text: found for said, found in recurring.items() if said.speaker == responder}


def _is_new(dialogue: Dialogue, turn: int) -> bool:
    """Return whether a turn has a context of two utterances and does not repeat the last reply."""
    said = dialogue.utterances
    return turn > 1 and said[turn - 2].text != said[turn].text


def _cut_context(dialogue: Dialogue, turn: int) -> Context:
    said = dialogue.utterances
    return Context(said[max(turn - MOST_UTTERANCES, 0) : turn], said[turn], dialogue.id)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedDialogueAnswers:
    """A pool of recurring replies in the vectors of one encoder.

    Attributes:
        replies: (C, d) of the replies.
        contexts: The contexts in which one of them comes next.
        examples: For each reply (q, d) of its examples.
    """

    replies: Float32
    contexts: Contexts
    examples: tuple[Float32, ...]

    def draw_trial(self, examples: int, covered: float, seed: int) -> Trial:
        """Draw examples, and search after all contexts.

        Args:
            examples: Examples of a covered reply, as far as it has so many.
            covered: Share of the replies that have examples.
            seed: Equal seeds cover the same replies and draw their examples in the same order.
        """
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(len(said)) for said in self.examples]
        covered_replies = draw_covered(len(self.replies), covered, rng)
        numbers = np.where(covered_replies, examples, 0)
        known = [
            said[order[:number]]
            for said, order, number in zip(self.examples, orders, numbers, strict=True)
        ]
        return make_trial(self.contexts, self.replies, known, covered_replies)


def encode_dialogue_answers(
    encoder: UtteranceEncoder, answers: DialogueAnswers
) -> EncodedDialogueAnswers:
    """Encode a pool of recurring replies, with the aggregation that the encoder recommends."""
    split = answers.split
    encoded = encode_split(encoder, split)
    said = [text for texts in answers.examples for text in texts]
    ends = np.cumsum([len(texts) for texts in answers.examples])[:-1]
    last_replies = np.array([context.utterances[-2].text for context in split.contexts])
    newest = [context.utterances[-1].text for context in split.contexts]
    contexts = Contexts(
        queries=np.stack(list(map(encoder.aggregation.query, encoded.first, encoded.second))),
        newest=encoder.as_examples(encoder.encode(newest, Role.SAID)),
        utterances=split.lengths,
        left_out=last_replies[:, None] == np.array(split.pool),
        right=split.true,
    )
    placed = encoder.as_examples(encoder.encode(said, Role.SAID))
    examples = np.split(placed, ends)
    return EncodedDialogueAnswers(encoded.vectors, contexts, tuple(examples))


def evaluate_dialogue_answers(
    models: Mapping[str, UtteranceEncoder],
    pools: Mapping[str, DialogueAnswers],
    examples: Sequence[int],
    covered: float,
) -> Iterator[Row]:
    """Evaluate models with several numbers of examples, over `DRAWS` trials each.

    Args:
        models: The models by their names in the table.
        pools: The pools by their names in the table.
        examples: Numbers of examples of a reply.
        covered: Share of the replies that have examples.

    Yields:
        For each model and pool a row a number, with the metrics of `evaluate_answers`. The rows
        have no outcomes, since other rows have other contexts.
    """
    for (label, model), (name, pool) in product(models.items(), pools.items()):
        encoded = encode_dialogue_answers(model, pool)
        for count in examples:
            trials = [encoded.draw_trial(count, covered, seed) for seed in range(DRAWS)]
            row = f"{label} · {name}, {name_examples(count, covered)}"
            yield replace(measure_trials(row, model, trials), outcomes=None)
