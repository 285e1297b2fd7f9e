"""The training of the interaction-over-interaction network, from top to bottom."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from turnwise.models import DEFAULT_MODEL
from turnwise.models.encoder import UtteranceEncoder, default_device
from turnwise.models.errors import DataError, naming
from turnwise.models.evaluation.metrics import ranks_of
from turnwise.models.evaluation.ranking_examples import Building, RankingExample, build_ranking
from turnwise.models.evaluation.split import Context
from turnwise.models.rerankers.ioi import Example, IoI, WordIds, match
from turnwise.models.rerankers.ioi_network import InteractionNetwork, Sizes, matching_loss
from turnwise.models.rerankers.vocabulary import has_more_words, word_vectors
from turnwise.models.training.checkpoint import replacing
from turnwise.models.training.corpora import (
    Find,
    count_steps,
    draw_batches,
    recipe_of,
    validation_dialogues,
)
from turnwise.models.training.loop import Report, Run, fit, silent
from turnwise.models.training.pairs import hard_negatives, read_pairs
from turnwise.models.training.reranker_config import IoIConfig, IoIOptimiser


def train_ioi(
    config: IoIConfig,
    out: Path,
    *,
    find: Find = Path,
    report: Report = silent,
    device: str | None = None,
    resume: bool = False,
) -> Path:
    """Train a network and leave the best one in a folder.

    Args:
        config: The run.
        out: Folder for `model/` (the best by the average rank of the true response among ten;
            without validation the last), `checkpoint/`, `curves.csv` and `curves.png`.
        find: From a path as the configuration names it to where the file is.
        report: Called after every step.
        device: A torch device; without one a GPU where there is one, else the CPU.
        resume: Whether to go on from `out/checkpoint`, where there is one.

    Returns:
        The folder of the best network.

    Raises:
        DataError: A file of the data does not hold what it should.
        ModelError: The encoder of the hard negatives cannot be loaded.
        TrainingError: The loss is no longer finite, or the checkpoint is not one of this run.
    """
    words, turns = config.network.words, config.network.turns
    read = [read_pairs(c, find, turns, partial(has_more_words, words)) for c in config.data]
    validate = validator(config, find)
    torch.manual_seed(config.seed)
    model = make_model(config, list(chain.from_iterable(read)), default_device(device))
    corpora = [
        (items_of(pairs, model, config), corpus.pairs)
        for pairs, corpus in zip(read, config.data, strict=True)
    ]
    responses = [item.response for items, _ in corpora for item in items]
    if len(set(responses)) < 2:
        raise DataError("no two responses of different words in it", config.data[0].path)

    def gradients(done: int) -> Iterator[tuple[dict[str, float], int]]:
        batches = islice(all_batches(corpora, config), done, None)
        for step, items in enumerate(batches, done + 1):
            rng = np.random.default_rng([config.seed, step])
            torch.manual_seed(int(rng.integers(2**63)))  # of dropout
            examples = with_negatives(items, responses, config.negatives.hard, rng)
            labels = torch.tensor([1.0, 0.0] * len(items), device=default_device(device))
            logits = match(model.network.train(), examples)
            loss = matching_loss(logits, labels, config.network.objective)
            loss.backward()  # type: ignore[no-untyped-call]
            yield (
                {config.network.objective: loss.item()},
                sum(len(context) for context, _ in examples),
            )

    steps = count_steps(corpora, config.batch // 2, config.epochs)
    run = Run(
        learner=model.network,
        recipe=recipe_of(config, corpora),
        optimiser=torch.optim.Adam(model.network.parameters(), config.optimiser.learning_rate),
        rate=decay(config.optimiser),
        steps=steps,
        every=config.validation.every,
        gradients=gradients,
        validate=lambda: validate(model),
        save=lambda: save(model, config, out / "model"),
    )
    fit(run, out, resume=resume, report=report)
    return out / "model"


def make_model(config: IoIConfig, pairs: Sequence[Context], device: str) -> IoI:
    """Return an untrained network over word2vec's vectors of the pairs' texts."""
    vocabulary, vectors = word_vectors(
        distinct_texts(pairs),
        config.network.dimension,
        min_count=config.word_vectors.min_count,
        epochs=config.word_vectors.epochs,
        seed=config.seed,
    )
    network = InteractionNetwork(Sizes(vocabulary=len(vocabulary), **config.network.model_dump()))
    with torch.no_grad():
        network.embedding.weight.copy_(torch.from_numpy(vectors))
    return IoI(network.to(device), vocabulary)


def distinct_texts(pairs: Sequence[Context]) -> list[str]:
    """Return the texts of pairs, contexts and responses, each once."""
    return list(dict.fromkeys(text for pair in pairs for text in (*pair.texts, pair.target.text)))


@dataclass(frozen=True, slots=True)
class Item:
    """A true example in words, and the hard negatives that may stand beside it."""

    context: tuple[WordIds, ...]
    response: WordIds
    hard: tuple[WordIds, ...]


def items_of(pairs: Sequence[Context], model: IoI, config: IoIConfig) -> list[Item]:
    """Return pairs in words, each text split once; with hard negatives where they are wanted."""
    hard: Sequence[Sequence[str]] = [()] * len(pairs)
    if config.negatives.hard:
        encoder = UtteranceEncoder(config.negatives.encoder or DEFAULT_MODEL)
        hard = hard_negatives(encoder, pairs, config.negatives.among)
    words = {text: model.word_ids(text) for text in distinct_texts(pairs)}
    return [
        Item(
            tuple(words[text] for text in pair.texts),
            words[pair.target.text],
            tuple(words[text] for text in others),
        )
        for pair, others in zip(pairs, hard, strict=True)
    ]


def all_batches(
    corpora: Sequence[tuple[Sequence[Item], int | None]], config: IoIConfig
) -> Iterator[list[Item]]:
    """Yield the true examples of each step of all epochs."""
    for epoch in range(config.epochs):
        rng = np.random.default_rng([config.seed, 2**32 - 1, epoch])
        yield from draw_batches(corpora, config.batch // 2, config.seed, epoch, rng)


def with_negatives(
    items: Sequence[Item], responses: Sequence[WordIds], hard: float, rng: np.random.Generator
) -> list[Example]:
    """Return each true example, followed by one with a wrong response.

    Args:
        items: The true ones.
        responses: Those that a random one is drawn from; not all alike.
        hard: Share of hard ones.
        rng: Draws them.
    """
    examples: list[Example] = []
    for item in items:
        pool = item.hard if item.hard and rng.random() < hard else responses
        wrong = next((w for w in _draws(pool, rng, 2 * len(pool)) if w != item.response), None)
        wrong = wrong or next(w for w in responses if w != item.response)
        examples += [(item.context, item.response), (item.context, wrong)]
    return examples


def _draws(pool: Sequence[WordIds], rng: np.random.Generator, most: int) -> Iterator[WordIds]:
    return (pool[int(rng.integers(len(pool)))] for _ in range(most))


def decay(rates: IoIOptimiser) -> Callable[[int], float]:
    """Return the factor on the learning rate by step: exponential, down to the least."""
    least = rates.least_learning_rate / rates.learning_rate
    return lambda step: max(rates.decay ** (step / rates.decay_steps), least)


def save(model: IoI, config: IoIConfig, folder: Path) -> None:
    """Write the network as it stands in a folder's place."""
    with replacing(folder) as fresh:
        model.save(fresh, config.model_dump(mode="json"))


def validator(config: IoIConfig, find: Find) -> Callable[[IoI], dict[str, float]]:
    """Return what measures a network while it learns: mean metrics over the validation files.

    One context of each dialogue, its response among nine random ones of the same file; the same
    for every run.

    Raises:
        DataError: A file is too short, or has too few distinct utterances.
    """
    files = validation_dialogues(config.validation, find, history=1)
    examples = []
    for path, dialogues in files.items():
        with naming([find(path)]):
            examples.append(list(build_ranking(dialogues, Building(context=1))))

    def validate(model: IoI) -> dict[str, float]:
        model.network.eval()
        measured = [measure(model, of_file) for of_file in examples]
        names = measured[0] if measured else ()
        return {name: fmean(metrics[name] for metrics in measured) for name in names}

    return validate


def measure(model: IoI, examples: Sequence[RankingExample]) -> dict[str, float]:
    """Return average rank, R10@1 and mean reciprocal rank of the true responses."""
    scores = [model.scores([said.text for said in e.context], e.candidates) for e in examples]
    of_true = ranks_of(scores, [example.labels.index(1) for example in examples])
    return {
        "average_rank": float(of_true.expected.mean()),
        **of_true.hits((1,), "r10"),
        "mrr": float(of_true.reciprocal.mean()),
    }
