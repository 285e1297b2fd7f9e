"""An encoder without its weights, as a service knows one that another process runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from turnwise.models.card import CARD, find_file, locate_model, model_name, read_card
from turnwise.models.encoder.base import BaseEncoder
from turnwise.models.encoder.example_space import load_example_space
from turnwise.models.encoder.head_arrays import HEADS_FILE, HeadArrays
from turnwise.models.encoder.long_texts import cut_middle, keeps_ends
from turnwise.models.encoder.rewriting import Rewriting
from turnwise.models.encoder.scripts import Scripts
from turnwise.models.errors import ModelError
from turnwise.models.model_files import check_weights
from turnwise.models.roles import EncoderKind, RoleText

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


class StatedEncoder(BaseEncoder):
    """An encoder without its weights: its card, its tokenizer and its heads.

    Attributes:
        dimension: Length d of a vector.
        fingerprint: Digest of the model; vectors of equal fingerprints can be compared.
    """

    def __init__(self, model: str | Path) -> None:
        """Read the card, the heads and the space of examples.

        Args:
            model: A folder with a card, or a hub name.

        Raises:
            ModelError: One of them cannot be read, or the card does not state the encoder's facts.
        """
        check_weights(model, locate_model(model))
        card = read_card(model)
        if card.encoder is None:
            raise ModelError(
                f"model '{model}': {CARD} does not state what the encoder computes; write it with "
                "`turnwise card`"
            )
        super().__init__(
            card,
            name=model_name(model),
            kind=card.encoder.kind,
            heads=_load_heads(model) if card.encoder.kind is EncoderKind.HEADS else None,
            rewriting=Rewriting.of_model(model),
            example_space=load_example_space(model),
        )
        self._model = model
        self._facts = card.encoder
        self.dimension = card.encoder.dimension
        self.fingerprint = card.encoder.fingerprint

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

    def is_too_long(self, item: RoleText) -> bool:
        """Return whether a text has more word pieces than the model reads."""
        text = self.prefixed(item)
        # A word piece has at least one byte, but for the special ones.
        if len(text.encode()) + self._unlimited.num_special_tokens_to_add(False) <= self._limit:
            return False
        return len(self._unlimited.encode(text).ids) > self._limit


def _load_heads(model: str | Path) -> HeadArrays:
    file = find_file(model, HEADS_FILE)
    if file is None:
        raise ModelError(f"model '{model}': {HEADS_FILE} is missing")
    return HeadArrays.load(file)
