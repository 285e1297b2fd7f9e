"""An encoder without its weights, as a service knows one that another process runs."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.models.arrays import Float32
from turnwise.models.card import CARD, find_file, locate_model, model_name, read_card
from turnwise.models.encoder.emoji_words import EmojiWords
from turnwise.models.encoder.example_space import load_example_space
from turnwise.models.encoder.head_arrays import HEADS_FILE, HeadArrays
from turnwise.models.errors import ModelError
from turnwise.models.model_files import check_weights
from turnwise.models.roles import EncoderKind, RoleText, prefixed


class StatedEncoder:
    """An encoder without its weights: the facts in its model's card, and its heads.

    Attributes:
        name: As `model_name` returns it.
        kind: Which roles and relations it distinguishes, and how.
        dimension: Length d of a vector.
        fingerprint: Digest of the model; vectors of equal fingerprints can be compared.
        aggregation: The aggregation that the card recommends.
        calibration: The calibration of its confidences, if the card has one.
        fusion: How reply scores and example scores meet.
        example_calibration: What corrects confidences in pools with examples, if the card has it.
    """

    def __init__(self, model: str | Path) -> None:
        """Read the card, the heads and the space of examples.

        Args:
            model: A folder with a card, or a hub name.

        Raises:
            ModelError: One of them cannot be read, or the card has no facts of the
                encoder.
        """
        check_weights(model, locate_model(model))
        card = read_card(model)
        if card.encoder is None:
            raise ModelError(
                f"model '{model}': {CARD} does not state what the encoder computes; write it with "
                "`turnwise card`"
            )
        self._facts = card.encoder
        self.name = model_name(model)
        self.aggregation = card.aggregation
        self.calibration = card.confidence
        self.fusion = card.fusion
        self.example_calibration = card.example_confidence
        self.kind = self._facts.kind
        self.dimension = self._facts.dimension
        self.fingerprint = self._facts.fingerprint
        self._emoji = EmojiWords.of_model(model)
        self._example_space = load_example_space(model)
        self._heads = _heads(model) if self.kind is EncoderKind.HEADS else None

    def prefixed(self, item: RoleText) -> str:
        """Return a text as the model reads it."""
        return prefixed(self.kind, self._write_emoji(item))

    def _write_emoji(self, item: RoleText) -> RoleText:
        return item._replace(text=self._emoji.write(item.text)) if self._emoji else item

    def in_roles(self, vectors: Float32, items: Sequence[RoleText]) -> Float32:
        """Return the (n, d) vectors of n texts in their roles, from what `forward` returned."""
        return self._heads.in_roles(vectors, items) if self._heads else vectors

    def as_examples(self, said: Float32) -> Float32:
        """Return (n, d) places of utterances [B2] in the space of examples."""
        return self._example_space.place(said) if self._example_space else said


def _heads(model: str | Path) -> HeadArrays:
    file = find_file(model, HEADS_FILE)
    if file is None:
        raise ModelError(f"model '{model}': {HEADS_FILE} is missing")
    return HeadArrays.load(file)
