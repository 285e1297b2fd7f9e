"""What a model reads instead of a text as it was written."""

from pathlib import Path
from typing import NamedTuple, Self

from turnwise.models.encoder.emoji_words import EmojiWords
from turnwise.models.encoder.spelling import Spelling
from turnwise.models.roles import RoleText, is_said


class Rewriting(NamedTuple):
    """The parts of a model that rewrite texts before the tokenizer; by default, there are none."""

    emoji: EmojiWords | None = None
    spelling: Spelling | None = None

    @classmethod
    def of_model(cls, name: str | Path) -> Self:
        """Return what a model's folder has of it.

        Args:
            name: A folder, a folder inside a Python package, or a hub name.

        Raises:
            ModelError: A file cannot be read.
        """
        return cls(EmojiWords.of_model(name), Spelling.of_model(name))

    def save(self, folder: Path) -> None:
        """Write the files into a model's folder."""
        for part in self:
            if part:
                part.save(folder)

    def to_text(self) -> str:
        """Return a text that is equal for what rewrites texts equally."""
        emoji = self.emoji.to_json() if self.emoji else ""
        return emoji + (self.spelling.to_text() if self.spelling else "")

    def rewrite(self, item: RoleText) -> RoleText:
        """Return a text with emoji as words and, in an utterance, without typing errors."""
        text = self.emoji.write(item.text) if self.emoji else item.text
        if self.spelling and is_said(item.role):
            text = self.spelling.correct(text)
        return item._replace(text=text)


AS_WRITTEN = Rewriting()
"""Nothing rewrites texts."""
