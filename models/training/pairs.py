"""Contexts and their responses, and the wrong responses that they are trained beside."""

from collections.abc import Callable, Sequence

import numpy as np

from turnwise.models.data import Dialogue
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import DataError
from turnwise.models.evaluation.split import Context, Split, encode_split
from turnwise.models.training.corpora import Find, read_source, warn_of_cut_texts
from turnwise.models.training.reranker_config import PairCorpus

BLOCK = 512


def pairs_of(dialogue: Dialogue, turns: int) -> list[Context]:
    """Return a pair for each utterance but the first, with at most `turns` before it."""
    said = dialogue.utterances
    return [Context(said[max(0, t - turns) : t], said[t]) for t in range(1, len(said))]


def read_pairs(
    corpus: PairCorpus, find: Find, turns: int, is_truncated: Callable[[str], bool]
) -> list[Context]:
    """Return all pairs of a corpus; warn where it has texts that the model cuts.

    Args:
        corpus: The corpus.
        find: Where its files are.
        turns: Utterances of a context at most.
        is_truncated: Whether a text is longer than what the model reads.

    Raises:
        DataError: The file does not hold dialogues, or all its responses are the same.
    """
    dialogues = list(read_source(corpus, find))
    warn_of_cut_texts(str(find(corpus.path)), dialogues, is_truncated)
    pairs = [pair for dialogue in dialogues for pair in pairs_of(dialogue, turns)]
    if len({pair.target.text for pair in pairs}) < 2:
        raise DataError("no two different responses in it", str(find(corpus.path)))
    return pairs


def hard_negatives(
    encoder: UtteranceEncoder, pairs: Sequence[Context], among: int
) -> list[tuple[str, ...]]:
    """Return for each pair the responses to others that an encoder finds best for its context.

    Args:
        encoder: Its running query retrieves, with the aggregation that its card recommends.
        pairs: N pairs.
        among: Responses for each, less those that are the true one, word for word.
    """
    pool = tuple(dict.fromkeys(pair.target.text for pair in pairs))
    place = {text: index for index, text in enumerate(pool)}
    true = np.array([place[pair.target.text] for pair in pairs], np.intp)
    encoded = encode_split(encoder, Split(tuple(pairs), pool, true))
    both = zip(encoded.first, encoded.second, strict=True)
    asked = np.stack([encoder.aggregation.query(first, second) for first, second in both])
    found: list[tuple[str, ...]] = []
    for start in range(0, len(pairs), BLOCK):
        scores = asked[start : start + BLOCK] @ encoded.vectors.T
        scores[np.arange(len(scores)), true[start : start + BLOCK]] = -np.inf
        count = min(among, len(pool) - 1)
        best = np.argpartition(-scores, count - 1)[:, :count]
        found += [tuple(pool[index] for index in places) for places in best]
    return found
