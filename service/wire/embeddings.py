"""`/v1/embeddings`: texts to vectors, compatible with the clients of OpenAI."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from turnwise.service.wire.fields import MAX_CANDIDATES, Count, Value

MOST_CHARACTERS = 65_536
"""Characters of a text: more than the longest message, whose emoji may be written as words."""

ReadText = Annotated[str, Field(max_length=MOST_CHARACTERS)]


class EmbeddingsRequest(Value):
    """Texts as the model reads them: they get no prefix. Other fields of OpenAI's are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str
    """The name of the service's model."""
    input: ReadText | Annotated[list[ReadText], Field(max_length=MAX_CANDIDATES)] = Field(
        min_length=1
    )
    encoding_format: Literal["float", "base64"] = "float"
    """`base64`: the bytes of the numbers, as float32, little endian."""
    dimensions: Count | None = None
    """Only the model's own."""

    @property
    def texts(self) -> list[str]:
        """The texts, in order."""
        return [self.input] if isinstance(self.input, str) else self.input


class Embedding(Value):
    """The unit vector of a text."""

    object: Literal["embedding"] = "embedding"
    index: int
    """The text's place in the request, from 0."""
    embedding: list[float] | str


class TokenUsage(Value):
    """Clients of OpenAI need this object."""

    prompt_tokens: int = 0
    """Always 0: Turnwise does not count tokens."""
    total_tokens: int = 0


class EmbeddingsAnswer(Value):
    """The vectors of the texts, in the order of the request."""

    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: TokenUsage = TokenUsage()
    fingerprint: str
    """The fingerprint of the model."""
