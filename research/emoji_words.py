"""Measures whether a model finds more replies if emoji become words before it reads them.

    python research/emoji_words.py --data research/emoji.jsonl

Each message is encoded with its emoji, with their names in Unicode, and with the names of the
package `emoji` if it is installed. Prints how often the right reply is first among all replies.
"""

import argparse
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

import numpy as np

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.encoder.emoji_words import EMOJI_FILE, EmojiWords
from turnwise.models.encoder.onnx import OnnxEncoder
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs, read_as
from turnwise.models.scores import rows, running_query

SAID = (("before", Relation.SAME), ("said", Relation.OTHER))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()

    cases = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
    with TemporaryDirectory() as folder:
        without = Path(folder) / "model"
        copytree(DEFAULT_MODEL, without, ignore=ignore_patterns(EMOJI_FILE))
        encoder = OnnxEncoder(str(without))
    replies = encode(encoder, candidate_inputs(case["reply"] for case in cases))
    written: dict[str, Callable[[str], str]] = {
        "as they are": str,
        "Unicode names": EmojiWords.of_unicode().write,
    }
    try:
        written["names of the package"] = name_by_package()
    except ModuleNotFoundError:
        print("without the package emoji")
    for label, write in written.items():
        queries = np.stack([query(encoder, case, write) for case in cases])
        scores = queries @ replies.T
        ranks = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
        print(f"{label:21} R@1 {(ranks == 1).mean():.3f}  MRR {(1 / ranks).mean():.3f}")


def name_by_package() -> Callable[[str], str]:
    demojize = import_module("emoji").demojize
    return lambda text: demojize(text, delimiters=(" ", " ")).replace("_", " ")


def query(encoder: OnnxEncoder, case: dict[str, str], write: Callable[[str], str]) -> Float32:
    """Return the running query of a message, after the bot's question if there is one."""
    said = [(write(case[name]), relation) for name, relation in SAID if name in case]
    first, second = (
        encode(encoder, [RoleText(text, role, relation) for text, relation in said])
        for role in (Role.FIRST, Role.SECOND)
    )
    return running_query(rows(first, second), 1, paired=True)


def encode(encoder: OnnxEncoder, items: list[RoleText]) -> Float32:
    read = encoder.tokenize([read_as(item) for item in items])
    vectors = np.concatenate([encoder.forward([ids]) for ids in read])
    return encoder.in_roles(vectors, items)


if __name__ == "__main__":
    main()
