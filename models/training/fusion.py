"""Fits the fusion and the confidence with examples, on answers with phrasings of their questions.

The coefficients are those under which the right answers are likeliest, if the probability of an
answer is proportional to e^(sharpness · fused score): a conditional logit (McFadden, 1974). A pool
with replies that say little about their questions is among the trials, since examples decide there.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.card import update_card
from turnwise.models.confidence import Spread, regress
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.answers import (
    OUTSIDE,
    Answer,
    EncodedAnswers,
    Firsts,
    Trial,
    encode_answers,
    first_answers,
    read_answers,
    read_questions,
)
from turnwise.models.evaluation.metrics import Indices, Mask
from turnwise.models.example_confidence import ExampleCalibration, example_features
from turnwise.models.fusion import DEFAULT_FUSION, NARROWEST, Fusion
from turnwise.models.training.config import Config, EncoderConfig
from turnwise.models.training.corpora import Find

EXAMPLES = (1, 3, 5)
COVERED = (1.0, 0.5, 0.25)
SEEDS = (0, 1)
STRAY = 0.5
"""Share of the answers that get replies of another pool, in one of the trials' pools."""
_RIDGE = 1e-3
"""Weight of the squared coefficients."""


class Standardised(NamedTuple):
    """A trial as the fit sees it.

    Attributes:
        reply: z (n, C), the reply scores in standard deviations from their mean.
        cosine: (n, C) example scores; 0 where there are none.
        height: (n, C) the same in standard deviations from the mean of all examples.
        has_examples: (n, C) whether an answer has examples.
        right: (n,) index of the right answer.
    """

    reply: Float64
    cosine: Float64
    height: Float64
    has_examples: Mask
    right: Indices


def calibrate_examples(folder: Path, config: Config, find: Find) -> None:
    """Fit the fusion of a trained encoder and its confidence with examples; write both to its card.

    Args:
        folder: The folder of the model, whose card has the plain calibration if it has one.
        config: The run that trained it; without `answers` nothing is fitted.
        find: Finds its files.
    """
    if not isinstance(config, EncoderConfig) or not config.answers.pools:
        return
    encoder = UtteranceEncoder(folder, precision=config.precision)
    pools = [read_answers([find(path)]) for path in config.answers.pools]
    outside = read_questions(map(find, config.answers.outside))
    fusion, calibration = fit_examples(encoder, pools, outside)
    update_card(folder, "fusion", fusion)
    if calibration:
        update_card(folder, "example_confidence", calibration)


def fit_examples(
    encoder: UtteranceEncoder, pools: Sequence[Sequence[Answer]], outside: Sequence[str]
) -> tuple[Fusion, ExampleCalibration | None]:
    """Return the fusion, and the confidence with examples where the encoder has a calibration.

    Args:
        encoder: The encoder.
        pools: At least two pools of answers. The first one, say small talk, is also tried with
            replies that say little about their questions.
        outside: Questions that no answer of any pool fits.
    """
    encoded = [encode_answers(encoder, answers, outside) for answers in pools]
    alone = with_questions_of_others(encoded)
    alone.append(with_stray_replies(alone[0], encoded[1:]))
    trials = [draw_trials(pool) for pool in alone]
    fusion = fit_fusion([*trials, draw_trials(joined(encoded))])
    if encoder.calibration is None:
        return fusion, None
    found = [first_answers(trial, fusion) for of_pool in trials for trial in of_pool]
    plain = [encoder.calibration.confidence(each.features) for each in found]
    return fusion, fit_example_confidence(found, plain)


def draw_trials(pool: EncodedAnswers) -> list[Trial]:
    """Return the trials of a pool with every number of examples, coverage and seed."""
    return [pool.trial(*drawn) for drawn in product(EXAMPLES, COVERED, SEEDS)]


def fit_fusion(pools: Sequence[Sequence[Trial]]) -> Fusion:
    """Return the likeliest coefficients over trials of pools; each pool weighs the same."""
    from scipy.optimize import minimize  # type: ignore[import-untyped] # noqa: PLC0415

    trials = [[standardise(trial) for trial in of_pool] for of_pool in pools]

    def loss(w: Float64) -> tuple[float, Float64]:
        value = _RIDGE / 2 * float(w @ w)
        slope = _RIDGE * w
        for of_pool in trials:
            for trial in of_pool:
                more, gradient = negative_log_likelihood(w, trial)
                value += more / len(of_pool) / len(trials)
                slope = slope + gradient / len(of_pool) / len(trials)
        return value, slope

    start = DEFAULT_FUSION
    w = np.array([start.example, start.height, start.offset, start.softness, 1.5])
    free = (None, None)
    positive = (0.0, None)
    bounds = [positive, positive, free, (0.05, None), (0.05, None)]
    found = minimize(loss, w, jac=True, method="L-BFGS-B", bounds=bounds)
    example, height, offset, softness, _ = (round(float(each), 4) for each in found.x)
    return Fusion(example, height, offset, softness)


def negative_log_likelihood(w: Float64, trial: Standardised) -> tuple[float, Float64]:
    """Return the mean of -log P(right answer) over the questions, and its gradient (5,).

    Args:
        w: Example, height, offset and softness of the fusion, and the sharpness.
        trial: Questions that have an answer.
    """
    example, height, offset, softness, sharpness = w
    evidence = example * trial.cosine + height * trial.height + offset
    above = (evidence - trial.reply) / softness
    bonus = np.where(trial.has_examples, np.logaddexp(0, above), 0)
    passed = np.where(trial.has_examples, np.exp(-np.logaddexp(0, -above)), 0)
    fused = trial.reply + softness * bonus
    logits = sharpness * fused
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    questions = np.arange(len(trial.right))
    wrong = np.exp(log_p)
    wrong[questions, trial.right] -= 1
    wrong /= len(questions)
    parts = [
        sharpness * passed * trial.cosine,
        sharpness * passed * trial.height,
        sharpness * passed,
        sharpness * (bonus - passed * np.where(trial.has_examples, above, 0)),
        fused,
    ]
    gradient = np.array([(wrong * part).sum() for part in parts])
    return float(-log_p[questions, trial.right].mean()), gradient


def standardise(trial: Trial) -> Standardised:
    """Return the questions of a trial that have an answer, as the fit sees them."""
    inside = trial.right != OUTSIDE
    replies = _moments(trial.of_replies)[inside]
    examples = _moments(trial.of_examples)[inside]
    has_examples = np.isfinite(trial.examples[inside])
    cosine = np.where(has_examples, trial.examples[inside], 0)
    return Standardised(
        reply=(trial.replies[inside] - replies[:, :1]) / replies[:, 1:],
        cosine=cosine,
        height=np.where(has_examples, (cosine - examples[:, :1]) / examples[:, 1:], 0),
        has_examples=has_examples,
        right=trial.right[inside],
    )


def _moments(spreads: Sequence[Spread]) -> Float64:
    """Return the mean and the deviation (n, 2) of n spreads; no deviation is zero."""
    return np.array([(each.mean, max(each.deviation, NARROWEST)) for each in spreads])


def fit_example_confidence(found: Sequence[Firsts], plain: Sequence[Float64]) -> ExampleCalibration:
    """Return the calibration by the first answers of trials and their plain confidences."""
    example = np.concatenate([each.example for each in found])
    right = np.concatenate([each.right for each in found])
    columns = example_features(np.concatenate(plain), example)
    logit, cosine, without, offset = regress(columns, right).round(4).tolist()
    calibration = ExampleCalibration(logit, cosine, without, offset)
    figures = {"answers": len(right), "right": round(float(right.mean()), 4)}
    return replace(calibration, fitted=figures)


def with_questions_of_others(pools: Sequence[EncodedAnswers]) -> list[EncodedAnswers]:
    """Return the pools with more questions outside: one of each answer of the other pools."""
    asked = [np.stack([questions[0] for questions in pool.questions]) for pool in pools]
    return [
        replace(pool, outside=np.concatenate([pool.outside, *asked[:index], *asked[index + 1 :]]))
        for index, pool in enumerate(pools)
    ]


def with_stray_replies(pool: EncodedAnswers, others: Sequence[EncodedAnswers]) -> EncodedAnswers:
    """Return a pool in which the share `STRAY` of the replies comes from other pools."""
    rng = np.random.default_rng(0)
    strays = np.concatenate([other.replies for other in others])
    count = min(round(STRAY * len(pool.replies)), len(strays))
    replies = pool.replies.copy()
    replies[rng.permutation(len(replies))[:count]] = strays[rng.permutation(len(strays))[:count]]
    return replace(pool, replies=replies)


def joined(pools: Sequence[EncodedAnswers]) -> EncodedAnswers:
    """Return one pool with the answers of several, which have the same questions outside."""
    return EncodedAnswers(
        replies=np.concatenate([pool.replies for pool in pools]),
        questions=tuple(each for pool in pools for each in pool.questions),
        outside=pools[0].outside,
    )
