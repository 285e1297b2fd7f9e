"""`/v1/chat/completions` and `/v1/models`: compatible with the chat clients of OpenAI."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, JsonValue, StrictBool

from turnwise.service.wire.embeddings import TokenUsage
from turnwise.service.wire.fields import (
    Flag,
    Name,
    Omittable,
    SessionId,
    Share,
    Slots,
    TopK,
    Value,
    Warnings,
)
from turnwise.service.wire.filters import Where
from turnwise.service.wire.pools import PoolVersion, Selected


class _Foreign(Value):
    """A value of OpenAI's API: fields that Turnwise does not use are kept for the upstream."""

    model_config = ConfigDict(extra="allow")


class ContentPart(_Foreign):
    """A part of a message. Only texts are read."""

    type: str
    text: str | None = None


class ChatMessage(_Foreign):
    """A message. Those of the user and the assistant are the context; others are not read."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """The text of the message, without white space at its ends."""
        if isinstance(self.content, list):
            return " ".join(part.text for part in self.content if part.text).strip()
        return (self.content or "").strip()


class StreamOptions(_Foreign):
    """Options of a stream."""

    include_usage: StrictBool = False


class ChatOptions(Value):
    """Options of Turnwise, in the field `turnwise` of a request."""

    session_id: SessionId | None = None
    """The session that keeps the messages as turns; by default nothing is kept."""
    where: Where | None = None
    """A filter: only candidates whose metadata match it are returned."""
    slots: Slots = Field(default={})
    """Values for slots, in addition to those of the session."""
    min_confidence: Share | None = None
    """Fall back if the confidence is lower; by default the pool's, or 0."""


class ChatRequest(_Foreign):
    """Messages to reply to. Turnwise ignores fields such as `temperature` and `tools`."""

    model: Name
    """The pool to select from, or an alias."""
    messages: list[ChatMessage] = Field(min_length=1)
    """The conversation, oldest message first."""
    n: TopK | None = None
    """Number of candidates to return as choices, 1 by default; fewer if the pool has fewer."""
    stream: StrictBool | None = None
    """Whether to answer with server-sent events."""
    stream_options: StreamOptions | None = None
    turnwise: ChatOptions = ChatOptions()

    @property
    def context(self) -> list[ChatMessage]:
        """The messages of the user and the assistant that have a text."""
        return [
            message
            for message in self.messages
            if message.role in {"user", "assistant"} and message.text
        ]

    @property
    def forwarded(self) -> dict[str, Any]:
        """The fields that the client sent, without those for Turnwise."""
        return self.model_dump(exclude={"turnwise"}, exclude_unset=True)


class ChatDetails(Value):
    """What a turn would answer."""

    candidates: list[Selected]
    """The candidates of the choices, in the same order; empty if the answer is a fallback."""
    confidence: float | None
    """Probability that the first candidate is a right one; null if that cannot be known."""
    abstained: bool
    """Whether there are no candidates because the confidence was too low."""
    warnings: Warnings = Field(default=[])
    reranked: Flag = False
    """True if the model's own re-ranker ordered the first candidates; else left out."""
    truncated: Flag = False
    """True if the newest message is longer than what the model reads of it, its beginning and its
    end; else left out."""
    pool: PoolVersion | None
    turn: int | None
    """Number of the newest turn of the session; null without a session."""


class ChatUsage(TokenUsage):
    """Clients of OpenAI need this object."""

    completion_tokens: int = 0


class ChatReply(Value):
    """The message of a choice."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(Value):
    """A candidate, or the text of a fallback."""

    index: int
    message: ChatReply
    logprobs: None = None
    finish_reason: Literal["stop"] = "stop"


class ChatAnswer(Value):
    """The answer to a chat request, if it comes from Turnwise and is not streamed."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    """Unix seconds."""
    model: str
    """The `model` of the request."""
    choices: list[ChatChoice]
    """Best candidate first."""
    usage: ChatUsage = ChatUsage()
    turnwise: ChatDetails


class ChatDelta(Value):
    """What an event of a stream adds to a message."""

    role: Omittable[Literal["assistant"]] = None
    content: Omittable[str] = None


class ChunkChoice(Value):
    """What an event of a stream adds to a choice."""

    index: int
    delta: ChatDelta = ChatDelta()
    logprobs: None = None
    finish_reason: Literal["stop"] | None = None


class ChatChunk(Value):
    """An event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    """Unix seconds."""
    model: str
    choices: list[ChunkChoice]
    usage: Omittable[ChatUsage] = None
    """In the last event, if the request asks for it."""
    turnwise: Omittable[ChatDetails] = None
    """In the first event."""


class ChatModel(Value):
    """A pool or an alias, which clients name as their model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    """Unix seconds."""
    owned_by: Literal["turnwise"] = "turnwise"


class ChatModelList(Value):
    """The pools and aliases of a namespace."""

    object: Literal["list"] = "list"
    data: list[ChatModel]


JsonObject = dict[str, JsonValue]
"""An answer, or an event of a stream, of another service."""
