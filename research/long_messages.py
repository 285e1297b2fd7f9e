"""Measures which pieces of a message to keep that is longer than the model reads.

    python research/long_messages.py --data topical_chat/validation.jsonl.xz --share 0 .25 .5 .75 1

A message is made of an utterance and all that was said before it in its dialogue, more words than
the limit has word pieces. The utterance is the `last` part of the message, as it was said, or the
`first` one. Each share of the limit is taken from the end of the message, and the rest from its
beginning. Prints how often the true reply is the first of 100 and the mean reciprocal rank.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.onnx import OnnxEncoder
from turnwise.models.encoder.stated import TOKENIZER
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs, said_inputs

POOL = 100
LIMIT = 256
BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--messages", type=int, default=200)
    options = parser.parse_args()

    encoder = OnnxEncoder(DEFAULT_MODEL)
    tokenizer = Tokenizer.from_file(str(DEFAULT_MODEL / TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    dialogues = [each for file in options.data for each in read_dialogues(file)]
    asked, said, fill = sample(dialogues, options.messages)
    replies = encode(encoder, [encoder.tokenize([item])[0] for item in candidate_inputs(said)])
    places = {
        "last": [f"{more} {text}" for text, more in zip(asked, fill, strict=True)],
        "first": [f"{text} {more}" for text, more in zip(asked, fill, strict=True)],
    }
    print(f"{len(asked)} messages\nplace   share   R@1    MRR")
    for place, messages in places.items():
        items = said_inputs(messages)
        pieces = [tokenizer.encode(encoder.prefixed(item)).ids for item in items]
        for share in options.share:
            vectors = encode(encoder, [keep_ends(each, share) for each in pieces])
            items = [RoleText("", Role.SECOND, Relation.OTHER)] * len(vectors)
            hits, mrr = rank(encoder.in_roles(vectors, items), replies)
            print(f"{place:6}  {share:5.2f}  {hits:.3f}  {mrr:.3f}", flush=True)


def sample(dialogues: Sequence[Dialogue], count: int) -> tuple[list[str], list[str], list[str]]:
    """Return utterances, their replies, and all that was said before them."""
    rng = np.random.default_rng(1)
    asked: list[str] = []
    said: list[str] = []
    fill: list[str] = []
    for index in rng.permutation(len(dialogues)):
        texts = dialogues[index].texts
        before = " ".join(texts[:-2])
        if len(before.split()) > LIMIT and len(asked) < count:
            asked.append(texts[-2])
            said.append(texts[-1])
            fill.append(before)
    return asked, said, fill


def keep_ends(pieces: list[int], share: float) -> list[int]:
    """Return the first and the last pieces; the last one of all is special."""
    end = max(1, round(share * LIMIT))
    return pieces[: LIMIT - end] + pieces[len(pieces) - end :]


def encode(encoder: OnnxEncoder, tokens: list[list[int]]) -> Float32:
    batches = [tokens[start : start + BATCH] for start in range(0, len(tokens), BATCH)]
    return np.concatenate([encoder.forward(batch) for batch in batches])


def rank(queries: Float32, replies: Float32) -> tuple[float, float]:
    """Return R@1 and MRR of reply i after query i among the next replies, `POOL` in all."""
    count = len(queries)
    scores = queries @ replies.T
    ranks = []
    for index in range(count):
        among = np.arange(index, index + min(POOL, count)) % count
        ranks.append(1 + int((scores[index, among] > scores[index, index]).sum()))
    found = np.array(ranks)
    return float((found == 1).mean()), float((1 / found).mean())


if __name__ == "__main__":
    main()
