"""Measures what the list of words of the shipped model is good for.

    python research/typing_errors.py --dialogues sgd/validation.jsonl.xz --answers answers.jsonl.xz

The newest utterance is as it was said, or a word of at least four letters has a typing error. In
dialogues, the query knows the utterance before it, and its true reply is ranked among all replies
of the file. Answers are found by three of their phrasings, each in four trials.
"""

import argparse
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.spelling import WORDS_FILE
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.answers import read_answers
from turnwise.models.roles import Relation, Role, said_inputs
from turnwise.models.scores import row
from turnwise.models.training.noise import SHORTEST_WITH_TYPO, mistype

Int64 = NDArray[np.int64]

EXAMPLES = 3
TRIALS = 4
UTTERANCES = 10
"""First utterances of each dialogue."""


class Turn(NamedTuple):
    """Three utterances of a dialogue in a row; the first is "" where the dialogue begins."""

    before: str
    said: str
    reply: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dialogues", type=Path, nargs="*", default=[])
    parser.add_argument("--limit", type=int, default=200, help="dialogues of each file")
    parser.add_argument("--answers", type=Path, nargs="*", default=[])
    options = parser.parse_args()

    with TemporaryDirectory() as folder:
        plain = Path(folder) / "model"
        copytree(DEFAULT_MODEL, plain, ignore=ignore_patterns(WORDS_FILE))
        models = {
            "without the list": UtteranceEncoder(plain, device="cpu"),
            "with the list": UtteranceEncoder(device="cpu"),
        }
    print(f"{'':54}as said: R@1 MRR rank   with an error: R@1 MRR rank")
    for file in options.dialogues:
        turns = list(read_turns(file, options.limit))
        for name, encoder in models.items():
            ranks = [rank_replies(encoder, each) for each in (turns, with_errors(turns))]
            show(file, name, ranks)
    for file in options.answers:
        for name, encoder in models.items():
            show(file, name, rank_answers(encoder, file))


def read_turns(file: Path, limit: int) -> Iterator[Turn]:
    for dialogue in islice(read_dialogues(file), limit):
        texts = ("", *dialogue.texts[:UTTERANCES])
        for (before, said), reply in zip(pairwise(texts), texts[2:], strict=False):
            yield Turn(before, said, reply)


def with_errors(turns: Iterable[Turn]) -> list[Turn]:
    rng = np.random.default_rng(0)
    return [turn._replace(said=add_error(turn.said, rng)) for turn in turns]


def add_error(text: str, rng: np.random.Generator) -> str:
    """Return a text with a typing error in one of its words, if one is long enough."""
    words = text.split()
    long = [
        index
        for index, word in enumerate(words)
        if word.isalpha() and len(word) >= SHORTEST_WITH_TYPO
    ]
    if long:
        index = rng.choice(long)
        words[index] = mistype(words[index], rng)
    return " ".join(words)


def rank_replies(encoder: UtteranceEncoder, turns: list[Turn]) -> Int64:
    """Return the rank (n,) of each turn's reply among the replies of all turns."""
    before = encoder.encode([turn.before for turn in turns], Role.FIRST, Relation.SAME)
    said = encoder.encode([turn.said for turn in turns], Role.SECOND, Relation.OTHER)
    queries = [
        row(one[None][: bool(turn.before)], two)
        for turn, one, two in zip(turns, before, said, strict=True)
    ]
    scores = np.stack(queries) @ encoder.encode([turn.reply for turn in turns], Role.AFTER).T
    return ranks_of(scores, np.diag(scores))


def rank_answers(encoder: UtteranceEncoder, file: Path) -> tuple[Int64, Int64]:
    """Return the ranks of the right answers to questions as they were asked, and with errors."""
    answers = read_answers([file])
    found: tuple[list[Int64], list[Int64]] = ([], [])
    for trial in range(TRIALS):
        rng = np.random.default_rng(trial)
        drawn = [rng.permutation(answer.questions).tolist() for answer in answers]
        examples = [place(encoder, questions[:EXAMPLES]) for questions in drawn]
        right = [index for index, each in enumerate(drawn) for _ in each[EXAMPLES:]]
        asked = [question for questions in drawn for question in questions[EXAMPLES:]]
        for ranks, texts in zip(found, (asked, [add_error(t, rng) for t in asked]), strict=True):
            said = place(encoder, texts)
            scores = np.stack([(said @ each.T).max(axis=1) for each in examples], axis=1)
            ranks.append(ranks_of(scores, scores[np.arange(len(right)), right]))
    return np.concatenate(found[0]), np.concatenate(found[1])


def place(encoder: UtteranceEncoder, texts: list[str]) -> Float32:
    return encoder.as_examples(encoder.encode_in_roles(said_inputs(texts)))


def ranks_of(scores: Float32, right: Float32) -> Int64:
    """Return the rank (n,) of the right score (n,) among the scores (n, m) of each row."""
    return np.asarray(1 + np.count_nonzero(scores > right[:, None], axis=1))


def show(file: Path, name: str, measured: Iterable[Int64]) -> None:
    figures = [
        f"{(ranks == 1).mean():.3f} {(1 / ranks).mean():.3f} {ranks.mean():6.1f}"
        for ranks in measured
    ]
    label = f"{file.parent.name}/{file.name.partition('.')[0]}"
    print(f"{label:36} {name:16} {'   '.join(figures)}", flush=True)


if __name__ == "__main__":
    main()
