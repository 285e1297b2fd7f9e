"""The base of all encoders: what they do around the transformer, wherever that one runs."""

from collections.abc import Sequence
from typing import Protocol

from turnwise.models.arrays import Float32
from turnwise.models.card import Card
from turnwise.models.encoder.example_space import ExampleSpace
from turnwise.models.encoder.rewriting import Rewriting
from turnwise.models.encoder.scripts import Scripts
from turnwise.models.roles import EncoderKind, RoleText, prefixed


class Heads(Protocol):
    """Computes other roles of a text from its vector: `HeadArrays` in numpy, `RoleHeads` in torch.

    Docstrings of the methods are in `HeadArrays`.
    """

    def in_roles(self, read: Float32, items: Sequence[RoleText], /) -> Float32: ...  # noqa: D102


class BaseEncoder:
    """Writes texts as a transformer reads them, and computes roles and examples from its vectors.

    Attributes:
        name: The model's name, as `model_name` returns it.
        kind: The kind of encoder: which roles and relations it distinguishes, and how.
        aggregation: The aggregation that the model's card recommends.
        calibration: The calibration of its confidences, if its card has one.
        fusion: The fusion of reply scores and example scores.
        example_calibration: The correction of confidences in pools with examples, if its card has
            one.
        heads: The heads of the model; None if it has none.
        rewriting: What rewrites texts before the tokenizer.
        example_space: The space in which a message is compared with examples; None if it has none.
    """

    _scripts: Scripts

    def __init__(
        self,
        card: Card,
        *,
        name: str,
        kind: EncoderKind,
        heads: Heads | None,
        rewriting: Rewriting,
        example_space: ExampleSpace | None,
    ) -> None:
        """Take the parts of a model; a subclass sets `_scripts` from its vocabulary."""
        self.name = name
        self.kind = kind
        self.aggregation = card.aggregation
        self.calibration = card.confidence
        self.fusion = card.fusion
        self.example_calibration = card.example_confidence
        self.heads = heads
        self.rewriting = rewriting
        self.example_space = example_space

    def prefixed(self, item: RoleText) -> str:
        """Return a text as the model reads it: equal ones have the same vector."""
        return prefixed(self.kind, self.rewriting.rewrite(item))

    def knows_script(self, item: RoleText) -> bool:
        """Return whether the vocabulary knows the script of a text."""
        return self._scripts.knows(self.rewriting.rewrite(item).text)

    def in_roles(self, vectors: Float32, items: Sequence[RoleText]) -> Float32:
        """Return the (n, d) vectors of n texts in their roles, from those that were read."""
        return self.heads.in_roles(vectors, items) if self.heads else vectors

    def as_examples(self, said: Float32) -> Float32:
        """Return (n, d) places of utterances [B2] in the space of examples."""
        return self.example_space.place(said) if self.example_space else said
