"""Exceptions for bad input: files, folders and settings. Each message names the file.

- TurnwiseError: any error that a user can fix without reading our code.
  - DataError: an input file does not hold what it should.
  - ConfigError: a configuration has a field that is unknown, missing or out of range.
  - ModelError: a model folder cannot be loaded.
  - TrainingError: a training run cannot go on.
  - ServiceError of `turnwise.service.errors`: a request fails.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class TurnwiseError(Exception):
    """Any error that a user can fix without reading our code."""


class DataError(TurnwiseError):
    """An input file does not hold what it should.

    Attributes:
        what: The text of the error without the file.
        file: The file's name.
        line: The line, counted from 1, if it is known.
        field: The path of the field inside the line, such as `utterances[2].text`.
        option: The option of commands that names what the file does not say, such as `encoding`.
    """

    def __init__(
        self,
        what: str,
        file: str,
        line: int | None = None,
        field: str | None = None,
        option: str | None = None,
    ) -> None:
        super().__init__(what, file, line, field, option)  # all, so that pickling keeps them
        self.what = what
        self.file = file
        self.line = line
        self.field = field
        self.option = option

    def __str__(self) -> str:
        return f"{_describe_location(self.file, self.line, self.field)}: {self.what}"

    def advise(self, option: str) -> str:
        """Return the message with the option, as the caller writes it, that would also help."""
        return f"{self}, or name it with {option}" if self.option else str(self)


class ConfigError(TurnwiseError):
    """A configuration has a field that is unknown, missing or out of range.

    Attributes:
        what: The text of the error without the file.
        file: The file's name.
        field: The field, if one is to blame.
    """

    def __init__(self, what: str, file: str, field: str | None = None) -> None:
        super().__init__(what, file, field)
        self.what = what
        self.file = file
        self.field = field

    def __str__(self) -> str:
        return f"{_describe_location(self.file, None, self.field)}: {self.what}"


class ModelError(TurnwiseError):
    """A model folder cannot be loaded."""


class TrainingError(TurnwiseError):
    """A training run cannot go on."""


@contextmanager
def name_files(files: Iterable[Path]) -> Iterator[None]:
    """Add the names of files to a plain `TurnwiseError` about their contents."""
    try:
        yield
    except TurnwiseError as error:
        if type(error) is not TurnwiseError:  # the others name the file themselves
            raise
        raise DataError(str(error), ", ".join(map(str, files))) from None


def first_error(error: "ValidationError") -> str:
    """Return the first of pydantic's errors: its field, if there is one, and what is wrong."""
    first = error.errors(include_input=False)[0]
    message = message_of(first)
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {message}" if field else message


_PLAIN = {
    "extra_forbidden": "there is no such field",
    "model_type": "should be an object",
    "model_attributes_type": "should be an object",
    "dataclass_type": "should be an object",
    "dict_type": "should be an object",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "int_parsing_size": "is too large a number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "string_type": "should be a string",
    "list_type": "should be a list",
}
"""The meaning of those of pydantic's errors whose messages speak of Python, or at length."""
_BEGINNING = re.compile("^(Value error, |(Input|String|List|Dictionary|Value) (?=should ))")


def message_of(error: Mapping[str, object]) -> str:
    """Return the message of an error of pydantic; our validators word their own."""
    if plain := _PLAIN.get(str(error["type"])):
        return plain
    if error["type"] == "json_invalid":
        return str(error["msg"]).replace("Invalid JSON", "not JSON")
    if error["msg"] == "Field required":  # validators of ours have the same type
        return "is required"
    message, _, _ = str(error["msg"]).partition(" after validation")  # "not 70" of 16 items
    return _BEGINNING.sub("", message)


def _describe_location(file: str, line: int | None, field: str | None) -> str:
    parts = [file]
    if line is not None:
        parts.append(f"line {line}")
    if field is not None:
        parts.append(f'field "{field}"')
    return ", ".join(parts)
