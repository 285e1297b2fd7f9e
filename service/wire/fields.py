"""The types of fields that several resources share, and the base of every value."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

T = TypeVar("T")

MAX_TEXT_CHARS = 2000
"""Characters of a candidate or a goal; the encoder reads 256 word pieces."""
MAX_MESSAGE_CHARS = 32_000
"""Characters of what somebody says; the encoder reads its beginning and its end."""
MAX_CANDIDATE_BODY_BYTES = 16_384
"""Bytes of the body of a candidate."""
MAX_CANDIDATES = 1000
"""Candidates of a request, its documents, or its texts to embed."""
MAX_GOALS = 64
"""Goals of a request, or its utterances to avoid."""
MAX_TOP_K = 100
"""Candidates or orders that a request may ask for."""
MAX_SESSION_ID_BYTES = 256
"""Bytes of a session's id in UTF-8."""
RESPONDER = "bot"
"""The default responder of a session, and of a context that a request gives; see
`sessions/responder.py` for its other name."""
USER = "user"
"""The speaker of a text that comes without one: anybody but the responder."""


def _check_number(value: object) -> object:
    """Reject a boolean or a string, which pydantic would convert to a number."""
    if isinstance(value, bool | str):
        raise ValueError("should be a number")  # noqa: TRY004 - pydantic catches ValueError
    return value


def _check_repeat(value: object) -> object:
    """Reject another value with all that are allowed: of a union, pydantic names one branch."""
    if not isinstance(value, bool) and value not in ("last", "near"):
        raise ValueError("should be true, false, 'last' or 'near'")
    return value


def _check_bytes(session_id: str) -> str:
    size = len(session_id.encode())
    if size > MAX_SESSION_ID_BYTES:
        raise ValueError(f"{size} bytes are more than the limit of {MAX_SESSION_ID_BYTES}")
    return session_id


def _segment_pattern(excluded: str) -> str:
    """Return the pattern of texts that can be a segment of a URL's path, without some characters.

    `.` and `..` are not such segments: clients and proxies resolve them, even if they are escaped.
    So a text begins with at most two dots and another character, or with three dots.
    """
    return rf"^(\.{{0,2}}[^.{excluded}]|\.{{3}})[^{excluded}]*$"


_CONTROLS = r"\x00-\x1f\x7f"
_UNPRINTABLE = (
    _CONTROLS
    + r"\x80-\x9f\u2028\u2029"  # more controls, and separators of lines
    + r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that change the order of a text
    + r"\ufffd"  # what a path has for bytes that are not UTF-8
)
_SOMETHING = r"\S"

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"
_SLOT = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
_LINE = _segment_pattern(_CONTROLS)
_PRINTABLE = _segment_pattern(_UNPRINTABLE)
_FILE = f"^[^{_CONTROLS}]+$"
_IDEMPOTENCY_KEY = r"^[\x21-\x7e]{1,255}$"
_PREFIX = f"^[^{_UNPRINTABLE}]+$"
RULES = {
    _NAME: "use up to 128 letters, digits and . _ ~ -, and begin with a letter or digit",
    _SLOT: "use up to 64 letters, digits and _, and begin with a letter",
    _LINE: "use one line of text, other than '.' and '..'",
    _PRINTABLE: "use one line of printable text, other than '.' and '..'",
    _FILE: "use one line of text",
    _IDEMPOTENCY_KEY: "use up to 255 printable characters of ASCII, without spaces",
    _PREFIX: "use one line of printable text",
    _SOMETHING: "should not be blank",
}
"""What each pattern requires, in words."""

Name = Annotated[str, StringConstraints(pattern=_NAME)]
"""Name of a pool or a namespace: safe in a URL, a file name and a Redis key."""
SessionId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_SESSION_ID_BYTES, pattern=_PRINTABLE),
    AfterValidator(_check_bytes),
]
"""Id of a session: printable text, such as the address of a channel. Ids are compared byte by byte:
white space, case and the normal form of Unicode count."""
SessionPrefix = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_SESSION_ID_BYTES, pattern=_PREFIX),
    AfterValidator(_check_bytes),
]
"""The beginning of ids of sessions."""
IdempotencyKey = Annotated[str, StringConstraints(pattern=_IDEMPOTENCY_KEY)]
CandidateId = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=_LINE)]
"""One line of text."""
GroupName = CandidateId
"""Name of a group of candidates."""
FileName = Annotated[str, StringConstraints(max_length=255, pattern=_FILE)]
CandidateBody = Annotated[
    str, Field(min_length=1, json_schema_extra={"maxLength": MAX_CANDIDATE_BODY_BYTES})
]
"""A text that is returned with a candidate. Uploads limit its bytes."""
Slots = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=_SLOT)],
        Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_SOMETHING)],
    ],
    Field(max_length=100),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": 100,
            "propertyNames": {"pattern": _SLOT},
            "additionalProperties": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "pattern": _SOMETHING,
            },
        }
    ),
]
"""The values of slots in the texts of candidates, by their names."""
Speaker = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=64, pattern=_SOMETHING),
]
LongText = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, pattern=_SOMETHING)
]
Text = Annotated[LongText, Field(max_length=MAX_TEXT_CHARS)]
Message = Annotated[LongText, Field(max_length=MAX_MESSAGE_CHARS)]
"""What somebody says in a turn."""
Finite = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_check_number)]
Weight = Annotated[
    float, Field(ge=-1e6, le=1e6, allow_inf_nan=False), BeforeValidator(_check_number)
]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_check_number)]
Slope = Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False), BeforeValidator(_check_number)]
Offset = Annotated[
    float, Field(ge=-1e3, le=1e3, allow_inf_nan=False), BeforeValidator(_check_number)
]
Count = Annotated[int, Field(ge=1), BeforeValidator(_check_number)]
TopK = Annotated[int, Field(ge=1, le=MAX_TOP_K), BeforeValidator(_check_number)]
AggregationName = Literal["mean", "last_rows", "max_sim"]
RerankerName = Literal["ioi", "cross_encoder"]
Rerank = Literal["auto", "ioi", "cross_encoder"]
"""Which candidates a re-ranker orders: with `auto` only the first ones, and only where the first is
not sure; otherwise the whole short list."""
Wordings = Literal["best", "all"]
"""Whether an answer lists the best wording of each group, or all of them."""
Repeat = Annotated[StrictBool | Literal["last", "near"], BeforeValidator(_check_repeat)]
EncoderName = Literal["default", "pairwise"]
"""The encoder of a pool: the model that encodes sessions, or the pairwise model."""
StoreName = Literal["local", "milvus", "qdrant"]
"""Where the candidates of a pool are: in the memory of each replica, or in a candidate store."""

Omittable = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field of an answer that is left out if it is None."""
Flag = Annotated[bool, Field(exclude_if=lambda value: not value)]
"""A field of an answer that is left out unless it is true."""
Warnings = Annotated[
    list[str],
    Field(
        description="What is probably wrong with the request, the session or the pool, although "
        "there is an answer; left out if nothing is.",
        exclude_if=lambda value: not value,
    ),
]
"""The warnings of an answer."""


def given_schema(*names: str) -> dict[str, JsonValue]:
    """Return the JSON schema of an object in which these fields are present and not null."""
    return {"required": [*names], "properties": {n: {"not": {"type": "null"}} for n in names}}


def either_schema(one: str, other: str) -> dict[str, JsonValue]:
    """Return the JSON schema of an object with exactly one of two fields."""
    return {"oneOf": [given_schema(one), given_schema(other)]}


class Value(BaseModel):
    """An immutable value that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Aggregated(Value):
    """The aggregation of a request. The model card names the default of each field."""

    aggregation: AggregationName | None = None
    """`mean` sums all rows, `last_rows` the newest; `max_sim` scores a short list by MaxSim."""
    last_rows: Count | None = None
    """Number of rows that `last_rows` sums."""


class GivenTurn(Value):
    """A turn of a context that the request gives."""

    speaker: Speaker
    text: Message


class OptionalContext(Value):
    """A session, a context that the request gives, or neither."""

    model_config = ConfigDict(json_schema_extra={"not": given_schema("session_id", "context")})

    session_id: SessionId | None = None
    context: list[GivenTurn] | None = None

    @model_validator(mode="after")
    def _check_one_context(self) -> Self:
        if self.session_id is not None and self.context is not None:
            raise ValueError("give session_id or context, not both")
        return self
