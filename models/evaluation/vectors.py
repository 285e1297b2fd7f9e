"""Vectors of everything that an evaluation needs, each text encoded once a role and relation."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import Relation, Role, RoleText, prefixed, relation_to

Key = tuple[str, Role, Relation | None]


def context_keys(history: Iterable[Utterance], target_speaker: str, role: Role) -> list[Key]:
    """Return what a context is encoded as, for a target that `target_speaker` would say."""
    return [(said.text, role, relation_to(said.speaker, target_speaker)) for said in history]


def after_keys(texts: Iterable[str]) -> list[Key]:
    """Return what candidates and goals are encoded as."""
    return [(text, Role.AFTER, None) for text in texts]


class VectorTable:
    """Looks up vectors that were encoded in one call a role.

    A kind that gives two roles the same prefix has one vector for both.
    """

    def __init__(self, encoder: UtteranceEncoder, needed: Iterable[Key]) -> None:
        self._kind = encoder.kind
        distinct: dict[str, Key] = {}
        for key in needed:
            distinct.setdefault(self._prefixed(key), key)
        by_role: defaultdict[Role, list[Key]] = defaultdict(list)
        for key in distinct.values():
            by_role[key[1]].append(key)
        keys = [key for of_role in by_role.values() for key in of_role]
        self._place = {self._prefixed(key): place for place, key in enumerate(keys)}
        self._vectors = np.concatenate(
            [np.empty((0, encoder.dimension), np.float32)]
            + [encode_keys(encoder, of_role) for of_role in by_role.values()]
        )

    def __getitem__(self, keys: Sequence[Key]) -> Float32:
        """Return the (n, d) unit vectors of n keys."""
        return self._vectors[[self._place[self._prefixed(key)] for key in keys]]

    def _prefixed(self, key: Key) -> str:
        return prefixed(self._kind, RoleText(*key))


def encode_keys(encoder: UtteranceEncoder, keys: Sequence[Key]) -> Float32:
    """Encode keys of one role, at least one; (n, d) unit rows."""
    texts = [text for text, _, _ in keys]
    if keys[0][1] is Role.AFTER:
        return encoder.encode(texts, Role.AFTER)
    return encoder.encode(texts, keys[0][1], [relation for _, _, relation in keys if relation])
