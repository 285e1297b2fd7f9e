"""An encoder without its weights, as a service knows one that another process runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from turnwise.models.arrays import Float32
from turnwise.models.card import CARD, find_file, locate_model, model_name, read_card
from turnwise.models.encoder.emoji_words import EmojiWords
from turnwise.models.encoder.example_space import load_example_space
from turnwise.models.encoder.head_arrays import HEADS_FILE, HeadArrays
from turnwise.models.encoder.long_texts import cut_middle, keeps_ends
from turnwise.models.encoder.scripts import Scripts
from turnwise.models.errors import ModelError
from turnwise.models.model_files import check_weights
from turnwise.models.roles import EncoderKind, RoleText, prefixed

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text as the model reads it; its length is the number of its word pieces.

    Attributes:
        text: The text with its prefix, without the middle of a long utterance.
        pieces: Its word pieces, at most as many as the model reads.
    """

    text: str
    pieces: list[int]

    def __len__(self) -> int:
        return len(self.pieces)


class StatedEncoder:
    """An encoder without its weights: its card, its tokenizer and its heads.

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
        self._model = model
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

    def load_tokenizer(self, limit: int) -> None:
        """Load the tokenizer of the model's folder.

        Args:
            limit: The word pieces of the longest text that the model reads.

        Raises:
            Exception: The tokenizer cannot be read; its library raises plain exceptions.
        """
        file = find_file(self._model, TOKENIZER)
        if file is None:
            raise FileNotFoundError(f"{TOKENIZER} is missing")
        self._limit = limit
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(limit)
        self._unlimited = Tokenizer.from_file(str(file))
        self._unlimited.no_padding()
        self._unlimited.no_truncation()
        self._scripts = Scripts(self._unlimited.get_vocab())

    def read(self, items: Sequence[RoleText | str]) -> list[ReadText]:
        """Return what the model reads of each item; see `long_texts`.

        Args:
            items: Texts in roles, which get their prefix, or texts as the model reads them.
        """
        texts = [item if isinstance(item, str) else self.prefixed(item) for item in items]
        encoded = self._tokenizer.encode_batch_fast(texts)
        read = [ReadText(text, each.ids) for text, each in zip(texts, encoded, strict=True)]
        for index, item in enumerate(items):
            if keeps_ends(item) and len(read[index].pieces) == self._limit:
                spans = self._unlimited.encode(texts[index]).offsets
                text = cut_middle(texts[index], spans, self._limit)
                read[index] = ReadText(text, self._tokenizer.encode(text).ids)
        return read

    def knows_script(self, item: RoleText) -> bool:
        """Return whether the vocabulary knows the script of a text."""
        return self._scripts.knows(self._write_emoji(item).text)

    def is_too_long(self, item: RoleText) -> bool:
        """Return whether a text has more word pieces than the model reads."""
        text = self.prefixed(item)
        # A word piece has at least one byte, but for the special ones.
        if len(text.encode()) + self._unlimited.num_special_tokens_to_add(False) <= self._limit:
            return False
        return len(self._unlimited.encode(text).ids) > self._limit

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
