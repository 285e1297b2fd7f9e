"""Fits the fusion and the confidence with examples, on answers to questions and in dialogues.

The coefficients are those under which the right answers are likeliest, if the probability of an
answer is proportional to e^(sharpness · fused score): a conditional logit (McFadden, 1974). A pool
with replies that say little about their questions is among the trials, since examples decide there.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.card import read_card, update_card
from turnwise.models.confidence import NARROWEST, Calibration, Spread, held_out, regress
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.example_space import load_example_space
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError, name_files
from turnwise.models.evaluation.answers import (
    OUTSIDE,
    Answer,
    EncodedAnswers,
    FirstAnswers,
    Trial,
    add_replies,
    encode_answers,
    find_first_answers,
    read_answers,
    read_questions,
)
from turnwise.models.evaluation.confidence import Bank, texts_of
from turnwise.models.evaluation.dialogue_answers import (
    DialogueAnswers,
    EncodedDialogueAnswers,
    ask_in_sessions,
    encode_dialogue_answers,
    find_answers,
)
from turnwise.models.evaluation.metrics import Indices, Mask, auroc, calibration_error
from turnwise.models.example_confidence import ExampleCalibration, example_features
from turnwise.models.fusion import DEFAULT_FUSION, Fusion, log_utterances
from turnwise.models.training.config import Answers, EncoderConfig
from turnwise.models.training.corpora import Find

EXAMPLES = (1, 3, 5)
COVERED = (1.0, 0.5, 0.25)
SEEDS = (0, 1)
OTHERS = (0, 500, 5_000)
"""Candidates without examples that the pools have besides, when the confidence is fitted."""
ANSWERS = 8_000
"""First answers of each pool on which the confidence is fitted: every pool weighs the same."""
STRAY = 0.5
"""Share of the answers that get replies of another pool, in one of the trials' pools."""
_RIDGE = 1e-3
"""Weight of the squared coefficients."""
_SHARPNESS = 1.5
"""Sharpness from which the fit starts."""
_FREE = (None, None)
_NOT_NEGATIVE = (0.0, None)
_POSITIVE = (0.05, None)


class Standardised(NamedTuple):
    """A trial as the fit sees it.

    Attributes:
        reply: z (n, C), the reply scores in standard deviations from their mean.
        parts: (n, C, k) what the coefficients of the evidence multiply: cosine, height, 1 for the
            offset, reply, and the logarithm of the number of utterances.
        has_examples: (n, C) whether an answer has examples.
        left_out: (n, C) whether an answer is not offered.
        right: (n,) index of the right answer.
    """

    reply: Float64
    parts: Float64
    has_examples: Mask
    left_out: Mask
    right: Indices


class AnswerData(NamedTuple):
    """The data on which the fusion and the confidence with examples are fitted.

    Attributes:
        pools: The answers of each pool.
        outside: Questions that no answer fits.
        dialogues: Pools of replies that recur in dialogues.
        others: Texts that fill larger pools.
    """

    pools: list[list[Answer]]
    outside: list[str]
    dialogues: list[DialogueAnswers]
    others: set[str]


def read_answer_data(answers: Answers, find: Find) -> AnswerData:
    """Read the files that the table `answers` of a recipe names.

    Raises:
        DataError: A file is missing or malformed, hardly a reply recurs in its dialogues, or no
            answer of a pool has two examples.
    """
    pools = [read_pool(find(path)) for path in answers.pools]
    outside = read_questions(map(find, answers.outside))
    dialogues = []
    for file in map(find, answers.dialogues):
        with name_files([file]):
            dialogues.append(find_answers(list(read_dialogues(file))))
    others = texts_of(chain.from_iterable(read_dialogues(find(path)) for path in answers.others))
    return AnswerData(pools, outside, dialogues, others)


def read_pool(file: Path) -> list[Answer]:
    """Read a file of answers.

    Raises:
        DataError: It is missing or malformed, or no answer of it has two examples.
    """
    answers = read_answers([file])
    if all(len(answer.questions) < 2 for answer in answers):
        raise DataError("no answer has two examples, one of them to be asked", str(file))
    return answers


def calibrate_examples(folder: Path, config: EncoderConfig, find: Find) -> None:
    """Fit the fusion of a trained encoder and its confidence with examples; write both to its card.

    Args:
        folder: The folder of the model, whose card has the plain calibration if it has one.
        config: The run that trained it, with `answers`.
        find: Finds its files.
    """
    encoder = UtteranceEncoder(folder, precision=config.precision)
    fusion, calibration = fit_examples(encoder, *read_answer_data(config.answers, find))
    update_card(folder, "fusion", fusion)
    if calibration:
        update_card(folder, "example_confidence", calibration)


def keep_examples(folder: Path, base: str) -> None:
    """Give a model that was trained further what was fitted on the examples of its base.

    These are the space, the fusion and the confidence with examples; a base without a space has
    none of them to keep. Training further moves the vectors of utterances only a little.

    Args:
        folder: The folder of the model.
        base: The encoder from which the run started: a folder or a hub name.
    """
    space = load_example_space(base)
    if space is None:
        return
    space.save(folder)
    card = read_card(base)
    update_card(folder, "fusion", card.fusion)
    if card.example_confidence:
        update_card(folder, "example_confidence", card.example_confidence)


def fit_examples(
    encoder: UtteranceEncoder,
    pools: Sequence[Sequence[Answer]],
    outside: Sequence[str],
    dialogues: Sequence[DialogueAnswers] = (),
    others: Collection[str] = (),
) -> tuple[Fusion, ExampleCalibration | None]:
    """Return the fusion, and the confidence with examples where the encoder has a calibration.

    Args:
        encoder: The encoder.
        pools: At least two pools of answers. The first one, say small talk, is also tried with
            replies that say little about their questions.
        outside: Questions that no answer of any pool fits.
        dialogues: Pools of replies that recur in dialogues.
        others: Texts that fill larger pools, for the confidence.
    """
    encoded = [encode_answers(encoder, answers, outside) for answers in pools]
    alone = add_questions_of_others(encoded)
    alone.append(add_stray_replies(alone[0], encoded[1:]))
    first = [draw_trials(pool) for pool in alone]
    sessions = [ask_in_sessions(answers, outside) for answers in pools]
    later = [
        draw_trials(encode_dialogue_answers(encoder, each)) for each in chain(dialogues, sessions)
    ]
    fusion = fit_fusion([[*first, draw_trials(join_pools(encoded))], later])
    if encoder.calibration is None:
        return fusion, None
    bank = Bank.of(encoder, others, max(OTHERS)).vectors
    found: list[list[FirstAnswers]] = []
    for of_pool in [*first, *later]:
        enlarged = [each for trial in of_pool for each in enlarge_pools(trial, bank)]
        found.append([find_first_answers(each, fusion) for each in enlarged])
    return fusion, fit_example_confidence(encoder.calibration, found)


def enlarge_pools(trial: Trial, bank: Float32) -> list[Trial]:
    """Return a trial with each number of `OTHERS`, as far as the bank (n, d) has so many."""
    return [add_replies(trial, bank[:count]) for count in OTHERS if count <= len(bank)]


def draw_trials(pool: EncodedAnswers | EncodedDialogueAnswers) -> list[Trial]:
    """Return the trials of a pool with every number of examples, coverage and seed.

    In a pool of two answers, a quarter covers none; such trials are left out.
    """
    trials = [pool.draw_trial(*drawn) for drawn in product(EXAMPLES, COVERED, SEEDS)]
    return [trial for trial in trials if trial.has_examples]


def fit_fusion(kinds: Sequence[Sequence[Sequence[Trial]]]) -> Fusion:
    """Return the likeliest coefficients.

    Args:
        kinds: The trials of the pools of each kind, first questions and later turns. Each kind
            weighs the same, and so does each pool of a kind.
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped] # noqa: PLC0415

    trials: list[tuple[Standardised, float]] = []
    for pools in kinds:
        for of_pool in pools:
            weight = 1 / (len(kinds) * len(pools) * len(of_pool))
            trials += [(standardise_trial(trial), weight) for trial in of_pool]
    start = DEFAULT_FUSION
    fitted = [
        (start.example, _NOT_NEGATIVE),
        (start.height, _NOT_NEGATIVE),
        (start.offset, _FREE),
        (start.agreement, _NOT_NEGATIVE),
        (start.utterances, _FREE),
        (start.softness, _POSITIVE),
        (_SHARPNESS, _POSITIVE),
    ]
    initial, bounds = zip(*fitted, strict=True)
    found = minimize(
        penalised_loss, np.array(initial), (trials,), jac=True, method="L-BFGS-B", bounds=bounds
    )
    example, height, offset, agreement, utterances, softness, _ = found.x.round(4).tolist()
    return Fusion(
        example=example,
        height=height,
        offset=offset,
        softness=softness,
        agreement=agreement,
        utterances=utterances,
    )


def penalised_loss(
    w: Float64, trials: Sequence[tuple[Standardised, float]]
) -> tuple[float, Float64]:
    """Return the ridge penalty plus the weighted losses of trials, and the gradient (k + 2,).

    Args:
        w: As in `negative_log_likelihood`.
        trials: Trials and their weights.
    """
    value = _RIDGE / 2 * float(w @ w)
    gradient = _RIDGE * w
    for trial, weight in trials:
        of_trial, gradient_of_trial = negative_log_likelihood(w, trial)
        value += weight * of_trial
        gradient = gradient + weight * gradient_of_trial
    return value, gradient


def negative_log_likelihood(w: Float64, trial: Standardised) -> tuple[float, Float64]:
    """Return the mean of -log P(right answer) over the contexts, and its gradient (k + 2,).

    P is the softmax of sharpness * fused scores. As in `Fusion`, a fused score is the reply score
    plus softness * log(1 + exp((evidence - reply score) / softness)) where there are examples.

    Args:
        w: The k coefficients of the evidence, in the order of `Standardised.parts`; the softness
            of the fusion; and the sharpness.
        trial: Contexts that have an answer.
    """
    *coefficients, softness, sharpness = w
    above = (trial.parts @ coefficients - trial.reply) / softness
    bonus = np.where(trial.has_examples, np.logaddexp(0, above), 0)
    slope = np.where(trial.has_examples, np.exp(-np.logaddexp(0, -above)), 0)  # of the bonus
    fused = trial.reply + softness * bonus
    logits = np.where(trial.left_out, -np.inf, sharpness * fused)
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    contexts = np.arange(len(trial.right))
    of_logits = np.exp(log_p)
    of_logits[contexts, trial.right] -= 1
    of_logits /= len(contexts)
    of_fused = sharpness * of_logits
    of_evidence = np.einsum("ij,ijk->k", of_fused * slope, trial.parts)
    of_softness = (of_fused * (bonus - slope * above)).sum()
    of_sharpness = (of_logits * fused).sum()
    gradient = np.array([*of_evidence, of_softness, of_sharpness])
    return float(-log_p[contexts, trial.right].mean()), gradient


def standardise_trial(trial: Trial) -> Standardised:
    """Return the contexts of a trial that have an answer, as the fit sees them."""
    inside = trial.right != OUTSIDE
    replies = _moments(trial.of_replies)[inside]
    examples = _moments(trial.of_examples)[inside]
    has_examples = np.isfinite(trial.examples[inside])
    reply = (trial.replies[inside] - replies[:, :1]) / replies[:, 1:]
    cosine = np.where(has_examples, trial.examples[inside], 0)
    height = (cosine - examples[:, :1]) / examples[:, 1:]
    length = log_utterances(trial.contexts.utterances[inside, None])
    parts = np.broadcast_arrays(cosine, height, 1.0, reply, length)
    return Standardised(
        reply=reply,
        parts=np.stack(parts, axis=-1),
        has_examples=has_examples,
        left_out=trial.contexts.left_out[inside],
        right=trial.right[inside],
    )


def _moments(spreads: Sequence[Spread]) -> Float64:
    """Return the mean and the deviation (n, 2) of n spreads; no deviation is zero."""
    return np.array([(each.mean, max(each.deviation, NARROWEST)) for each in spreads])


def fit_example_confidence(
    plain: Calibration, found: Sequence[Sequence[FirstAnswers]]
) -> ExampleCalibration:
    """Return the calibration, with its figures.

    The figures are cross-validated: the calibration of each confidence was fitted on other pools.

    Args:
        plain: The calibration for pools without examples.
        found: For each pool the first answers of its trials.
    """
    drawn = [draw_answers(plain, of_pool) for of_pool in found]
    columns = np.concatenate([of_pool for of_pool, _ in drawn])
    right = np.concatenate([is_right for _, is_right in drawn])
    confidence = held_out(columns, right, np.repeat(np.arange(len(found)), ANSWERS))
    figures = {
        "answers": len(right),
        "right": float(right.mean()),
        "calibration_error": calibration_error(confidence, right),
        "auroc": cast("float", auroc(confidence, right)),
    }
    logit, cosine, without, later, candidates, offset = regress(columns, right).round(4).tolist()
    return ExampleCalibration(
        logit=logit,
        cosine=cosine,
        without=without,
        offset=offset,
        later=later,
        candidates=candidates,
        fitted={name: round(value, 4) for name, value in figures.items()},
    )


def draw_answers(plain: Calibration, firsts: Sequence[FirstAnswers]) -> tuple[Float64, Mask]:
    """Return the features (ANSWERS, 5) of some of a pool's first answers, and which are right."""
    features = np.concatenate(
        [
            example_features(
                plain.confidence(each.features), each.example, each.candidates, each.utterances
            )
            for each in firsts
        ]
    )
    right = np.concatenate([each.right for each in firsts])
    drawn = np.random.default_rng(0).integers(len(right), size=ANSWERS)
    return features[drawn], right[drawn]


def add_questions_of_others(pools: Sequence[EncodedAnswers]) -> list[EncodedAnswers]:
    """Return the pools with questions that no answer fits: one for each answer of other pools."""
    asked = [np.stack([questions[0] for questions in pool.questions]) for pool in pools]
    return [
        replace(pool, outside=np.concatenate([pool.outside, *asked[:index], *asked[index + 1 :]]))
        for index, pool in enumerate(pools)
    ]


def add_stray_replies(pool: EncodedAnswers, others: Sequence[EncodedAnswers]) -> EncodedAnswers:
    """Return a pool in which the share `STRAY` of the replies comes from other pools."""
    rng = np.random.default_rng(0)
    strays = np.concatenate([other.replies for other in others])
    count = min(round(STRAY * len(pool.replies)), len(strays))
    replies = pool.replies.copy()
    replies[rng.permutation(len(replies))[:count]] = strays[rng.permutation(len(strays))[:count]]
    return replace(pool, replies=replies)


def join_pools(pools: Sequence[EncodedAnswers]) -> EncodedAnswers:
    """Return one pool with the answers of several, which have the same questions outside."""
    return EncodedAnswers(
        replies=np.concatenate([pool.replies for pool in pools]),
        questions=tuple(each for pool in pools for each in pool.questions),
        outside=pools[0].outside,
    )
