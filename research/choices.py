"""Simulates a team whose choices teach a pool: R@1 by the number of choices an answer.

    python research/choices.py --data answers.jsonl.xz [--picture docs/images/choices.svg]

The file has `{"id", "texts", "examples"}` a line, as for `turnwise evaluate answers`. At the start
no answer has an example. Each answer is asked in turn, in phrasings that nobody asked before, until
its candidate is among the five offered. The agent then chooses it, and the phrasing becomes a
learned example, by the rules of the service. A careless agent chooses another of the five in 5 % of
the cases. R@1 is measured on up to 20 other phrasings of each answer, over 10 draws.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.answers import (
    ASKED,
    DRAWS,
    Contexts,
    EncodedAnswers,
    Trial,
    encode_answers,
    find_first_answers,
    make_trial,
    read_answers,
)
from turnwise.service.use_cases.learning import NEAR_COPY

CHOICES = (0, 1, 2, 3, 5, 8)
OFFERED = 5
CARELESS = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--without", default="out_of_scope/", help="Ids that are left out.")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()

    answers = [a for a in read_answers([options.data]) if not a.id.startswith(options.without)]
    encoder = UtteranceEncoder()
    encoded = encode_answers(encoder, answers)
    curves = {}
    for name, careless in (("all choices right", 0.0), ("5 % wrong", CARELESS)):
        draws = [Team(encoder, encoded, seed, careless).work() for seed in range(DRAWS)]
        curves[name] = np.array(draws)
    print("choices an answer  " + "  ".join(f"{count:5d}" for count in CHOICES))
    for name, curve in curves.items():
        print(f"{name:17s}  " + "  ".join(f"{mean:5.3f}" for mean in curve.mean(axis=0)))
    if options.picture:
        draw(curves, options.picture)


class Team:
    """Agents who answer questions by choosing among the candidates that are offered."""

    def __init__(
        self, encoder: UtteranceEncoder, encoded: EncodedAnswers, seed: int, careless: float
    ) -> None:
        self._encoder = encoder
        self._replies = encoded.replies
        self._careless = careless
        self._rng = np.random.default_rng(seed)
        orders = [self._rng.permutation(len(each)) for each in encoded.questions]
        shuffled = [each[order] for each, order in zip(encoded.questions, orders, strict=True)]
        # Half of the phrasings at most measure, so that each answer has some to learn from.
        tested = [min(ASKED, len(each) // 2) for each in shuffled]
        self._tests = [each[:count] for each, count in zip(shuffled, tested, strict=True)]
        self._asked = [iter(each[count:]) for each, count in zip(shuffled, tested, strict=True)]
        self._examples: list[list[Float32]] = [[] for _ in shuffled]

    def work(self) -> list[float]:
        """Return R@1 after each of `CHOICES` an answer."""
        measured = []
        for choice in range(max(CHOICES) + 1):
            if choice in CHOICES:
                measured.append(self._measure())
            for answer in self._rng.permutation(len(self._replies)).tolist():
                self._ask(answer)
        return measured

    def _ask(self, answer: int) -> None:
        """Ask an answer in new phrasings until an agent has chosen a candidate."""
        for question in self._asked[answer]:
            scores = self._score(question[None], [answer])[0]
            offered = np.argsort(-scores, kind="stable")[:OFFERED].tolist()
            if answer not in offered:
                continue
            chosen = answer
            if self._rng.random() < self._careless:
                chosen = self._rng.choice([each for each in offered if each != answer])
            self._learn(chosen, question)
            return

    def _learn(self, answer: int, question: Float32) -> None:
        known = self._examples[answer]
        placed = question[1]
        if not known or max(example @ placed for example in known) < NEAR_COPY:
            known.append(placed)

    def _measure(self) -> float:
        questions = np.concatenate(self._tests)
        owners = [index for index, each in enumerate(self._tests) for _ in each]
        trial = self._trial(questions, owners)
        return float(find_first_answers(trial, self._encoder.fusion).right.mean())

    def _score(self, questions: Float32, right: Sequence[int]) -> Float64:
        return self._trial(questions, right).scores(self._encoder.fusion)

    def _trial(self, questions: Float32, right: Sequence[int]) -> Trial:
        count = len(self._replies)
        contexts = Contexts.of_questions(questions, np.array(right, np.intp), count)
        none = np.empty((0, self._replies.shape[1]), np.float32)
        known = [np.stack(each) if each else none for each in self._examples]
        return make_trial(contexts, self._replies, known, np.ones(count, np.bool_))


def draw(curves: dict[str, Float64], path: Path) -> None:
    """Draw R@1 by the number of choices, with its standard deviation over the draws."""
    import matplotlib as mpl  # noqa: PLC0415 - only a picture needs it

    mpl.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "turnwise"
    figure, axes = pyplot.subplots(figsize=(5.6, 3.2), layout="constrained")
    for (name, draws), style in zip(curves.items(), ("o-", "s--"), strict=True):
        axes.errorbar(CHOICES, draws.mean(axis=0), draws.std(axis=0), fmt=style, label=name)
    axes.set_xlabel("choices an answer")
    axes.set_ylabel("R@1")
    axes.set_xticks(CHOICES)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
