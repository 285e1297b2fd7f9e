"""Pools: uploads, edits and searches of candidates, and the state of a pool."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, Json, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from turnwise.service.wire.fields import (
    MAX_CANDIDATES,
    MAX_TEXT_CHARS,
    CandidateBody,
    CandidateId,
    EncoderName,
    FileName,
    Flag,
    GroupName,
    LongText,
    Message,
    Name,
    Offset,
    Omittable,
    Share,
    Slope,
    Slots,
    StoreName,
    Text,
    TopK,
    Value,
    Warnings,
)
from turnwise.service.wire.filters import Where

NDJSON = "application/x-ndjson"

LearnFrom = Literal["chosen"]
"""The feedback from which the candidates of a pool learn examples."""
PoolState = Literal["ready", "loading", "encoding", "damaged", "unread", "other_model"]

MOST_EXAMPLES = 32
"""Examples of a candidate, those that were learned included."""
_MOST_LEVELS = 100
"""Deepest nesting of metadata. Answers nest it a few levels deeper, and JSON parsers accept 200."""


def _check_depth(metadata: dict[str, Any]) -> dict[str, Any]:
    """Reject metadata that nest too deep. Without recursion, no depth exhausts the stack."""
    level: list[object] = [metadata]
    for _ in range(_MOST_LEVELS):
        level = [inner for outer in level for inner in _list_values(outer)]
        if not level:
            return metadata
    if any(isinstance(value, dict | list) for value in level):
        raise ValueError(f"nests deeper than the limit of {_MOST_LEVELS} levels")
    return metadata


def _list_values(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


AFTER = "after"
"""The field of the metadata that names the replies that a candidate follows."""
Metadata = Annotated[dict[str, Any], AfterValidator(_check_depth)]


def list_after(metadata: Mapping[str, Any]) -> list[Any]:
    """Return what `after` of the metadata holds; only the texts among it can name replies."""
    named = metadata.get(AFTER)
    if named is None:
        return []
    return named if isinstance(named, list) else [named]


class UploadedCandidate(Value):
    """A candidate to put into a pool."""

    # Uploads are limited; files of earlier releases may hold longer texts.
    text: Annotated[LongText, Field(json_schema_extra={"maxLength": MAX_TEXT_CHARS})]
    id: CandidateId | None = None
    """By default derived from the text, so that a pool holds the same text once."""
    metadata: Metadata = Field(default_factory=dict)
    """Returned with the candidate. One field changes the score: `after` names the replies that the
    candidate follows, by their ids or groups; it may be one of them or a list."""
    examples: list[Text] = Field(default=[], max_length=MOST_EXAMPLES)
    """Utterances of another speaker after which the candidate fits. A turn that says something
    similar finds the candidate by them."""
    group: GroupName | None = None
    """Candidates with the same group are wordings of one answer: by default only the best is
    returned."""
    body: CandidateBody | None = None
    """A longer text, such as the passage that the candidate names. It is returned with the
    candidate, and the encoder does not read it."""


def derive_id(text: str) -> str:
    """Return the id of a candidate that is uploaded without one."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class CandidateChange(Value):
    """Fields of a candidate to change. Those that are left out stay as they are."""

    text: Text | None = None
    metadata: Metadata | None = None
    """Replaces all metadata."""
    examples: list[Text] | None = Field(default=None, max_length=MOST_EXAMPLES)
    """Replaces the examples that were uploaded, not those that feedback has added."""
    add_examples: list[Text] = Field(default=[], max_length=MOST_EXAMPLES)
    """Examples to add to those of the candidate, which others may change at the same time."""
    remove_examples: list[Text] = Field(default=[], max_length=MOST_EXAMPLES)
    """Examples to remove; those that the candidate lacks are ignored."""
    group: GroupName | None = None
    """The group; null makes the candidate an answer of its own."""
    body: CandidateBody | None = None
    """The longer text that is returned with it; null removes it."""

    @model_validator(mode="before")
    @classmethod
    def _explain_after(cls, fields: Any) -> Any:  # noqa: ANN401 - whatever the JSON holds
        """Raise an error for a field `after` that says where that belongs."""
        if isinstance(fields, dict) and AFTER in fields:
            what = f"there is no such field, but metadata.{AFTER} is one"
            raise ValidationError.from_exception_data(
                cls.__name__,
                [
                    InitErrorDetails(
                        type=PydanticCustomError("misplaced", what),
                        loc=(AFTER,),
                        input=fields[AFTER],
                    )
                ],
            )
        return fields


class PoolCalibration(Value):
    """How confidences in a pool are corrected: the logit becomes slope · logit + offset."""

    slope: Slope
    offset: Offset


class PoolRequest(Value):
    """Settings of a pool. Those that are left out stay as they are."""

    description: str = Field(default="", max_length=1000)
    encoder: EncoderName | None = None
    """The encoder of its candidates; it never changes. By default `default`."""
    store: StoreName | None = None
    """Where its candidates are: `local`, the default, or the engine of `TURNWISE_STORE_URL`."""
    min_confidence: Share | None = None
    """Turns abstain below this confidence, unless they name another one; null removes it."""
    calibration: PoolCalibration | None = None
    """As `turnwise calibrate` fits it; null removes it."""
    learn: LearnFrom | None = None
    """`chosen`: feedback `chosen` and `edited` adds the utterance before the choice to the learned
    examples of the candidate. Null: only feedback that says so."""
    fallback: Text | None = None
    """The answer of `/v1/chat/completions` where a turn would offer no candidate; null removes
    it."""


class PoolSettings(NamedTuple):
    """The settings of a pool that may change."""

    description: str = ""
    min_confidence: float | None = None
    calibration: PoolCalibration | None = None
    learn: LearnFrom | None = None
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool as this replica holds it."""

    name: str
    version: int
    size: int
    index: Literal["flat", "ivf", "hnsw"]
    """`flat` compares all vectors, `ivf` those in the nearest lists, `hnsw` those on paths of a
    graph, in the candidate store."""
    exact: bool
    recall_at_10: float | None
    """Measured share of the exact top 10 that the index finds; null if the search is exact, or
    was not measured yet."""
    encoder: EncoderName
    store: StoreName
    """Where its candidates are."""
    model: str
    fingerprint: str
    """Fingerprint of the model whose vectors are searched."""
    state: PoolState
    """`loading` from Redis, `encoding` for this model, or `damaged`: Redis has lost a part.

    `unread`: not in this replica's memory; the first request that names the pool reads it.
    `other_model`: its candidate store holds vectors of another model than this replica's.
    """
    description: str
    created_at: float
    """Unix seconds."""
    bytes: int
    """Bytes of memory that vectors and codes take."""
    progress: float | None
    """Share of the pool that is loaded or indexed so far; null if neither is in progress."""
    min_confidence: float | None = None
    """Turns abstain below this confidence, unless they name another one."""
    calibration: PoolCalibration | None = None
    learn: LearnFrom | None = None
    """`chosen` if candidates also learn from feedback that leaves out its own `learn`."""
    fallback: str | None = None
    """The answer of `/v1/chat/completions` where a turn would offer no candidate."""
    width: int | None = None
    """Candidates that `hnsw` looks at in a search (`ef`); null for the other indexes."""
    aliases: list[str] = field(default_factory=list)
    """Other names of the pool."""


class AliasRequest(Value):
    """The pool that an alias points at."""

    to: Name
    expected: Name | None = None
    """The pool that the alias should point at now; another one is a conflict. By default any."""


class PoolList(Value):
    """The pools of a namespace, by name."""

    pools: list[PoolInfo]


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of an edit."""

    version: int
    upserted: int
    unchanged: int
    """Uploaded candidates that the pool already held with equal fields."""
    size: int
    warnings: list[str] = field(default_factory=list, kw_only=True)
    """What the model does not read of the uploaded texts, with the ids of the candidates."""


@dataclass(frozen=True, slots=True)
class FileEdited(Edited):
    """The result of an upload of a file."""

    notes: list[str]
    """Which columns became what, where their names do not say so, and what was left out."""


class UploadQuery(Value):
    """How an upload is read, and what it changes."""

    examples: Literal["replace", "add"] = "replace"
    """`replace` replaces the candidates with the same ids. `add` only adds the given examples to
    them, so the pool must have these candidates."""
    file: FileName | None = None
    """The name of the file that the body holds. The service then reads it as `turnwise pool load`
    does: its ending says whether it is JSON Lines, JSON, CSV, TSV or text, also `.gz` or `.xz`."""
    encoding: str | None = None
    """The encoding of the file; by default what its byte order mark or the content type says, or
    UTF-8."""
    text_column: str | None = None
    """The column, or field, of the texts in the file; by default it is found by the usual names."""
    examples_column: str | None = None
    """The column of the examples in the file; by default it is found by the usual names."""
    id_column: str | None = None
    """The column of the ids in the file; by default `id`."""
    group_column: str | None = None
    """The column of the groups in the file; by default `group` or `intent`; empty for none."""
    body_column: str | None = None
    """The column of the bodies in the file; by default `body`."""
    metadata_columns: str | None = None
    """The columns of metadata in the file, with commas between them; by default all others."""


class RemovalRequest(Value):
    """Ids of candidates to remove."""

    ids: list[CandidateId] = Field(min_length=1, max_length=MAX_CANDIDATES)


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a removal of many candidates."""

    version: int
    removed: int
    missing: int
    """Ids that the pool did not have."""
    size: int


@dataclass(frozen=True, slots=True)
class UploadStep:
    """Progress of an upload."""

    encoded: int
    total: int


class PoolVersion(Value):
    """The version of a pool that an answer used."""

    name: str
    version: int


class Matched(Value):
    """The example by which a search found a candidate, and the reply that the candidate follows."""

    example: Omittable[str] = None
    """The example of the candidate that is most similar to the newest utterance. Left out if it was
    learned and the caller lacks the scope `pools`."""
    learned: Flag = False
    """True if feedback added the example; else left out."""
    after: Omittable[str] = None
    """The id or the group of the responder's last reply, if the candidate names it in `after`."""


class Selected(Value):
    """A selected candidate of a pool."""

    id: str
    text: str
    score: float
    metadata: dict[str, Any]
    group: Omittable[str] = None
    """The answer that it is a wording of."""
    body: Omittable[str] = None
    template: Omittable[str] = None
    """The text as the pool has it, if slots or braces changed it."""
    matched: Omittable[Matched] = None
    """The example that found the candidate, if that says more for it than its text does; and the
    reply that it follows."""
    contributions: Omittable[list[float]] = None
    """One for each utterance of the context, oldest first; they add up to the score."""


class LearnedText(Value):
    """An example that feedback added."""

    text: str
    at: float
    """Unix seconds."""


class LearnedExample(LearnedText):
    """An example that feedback added to a candidate."""

    candidate: str
    """Id of the candidate."""


class PoolCandidate(Value):
    """A candidate as the pool holds it."""

    id: str
    text: str
    metadata: dict[str, Any]
    group: str | None
    """The answer that it is a wording of; null for an answer of its own."""
    body: Omittable[str] = None
    """The longer text that is returned with it, and not encoded."""
    examples: list[str]
    """Utterances of another speaker after which it fits."""
    learned: list[LearnedText] | None
    """Examples that feedback added, oldest first; null if the caller lacks the scope `pools`."""


class CandidatesQuery(Value):
    """The candidates to list."""

    limit: int = Field(default=100, ge=1, le=500)
    """Most candidates of a page."""
    cursor: CandidateId | None = None
    """The cursor that the page before returned; none for the first page."""
    where: Json[Where] | None = None
    """A filter, as JSON: only candidates whose metadata match it are listed."""
    q: str | None = Field(default=None, max_length=200)
    """A part of the text, of an example or of the id. Upper and lower case are the same. Learned
    examples are searched if the caller has the scope `pools`."""


class CandidatePage(Value):
    """A page of candidates, sorted by id; those of a candidate store in its order."""

    candidates: list[PoolCandidate]
    cursor: str | None
    """The cursor of the next page; null after the last one. A page before the last may be empty."""
    matching: int | None
    """Number of the candidates on all pages; null if they are in a candidate store."""
    warnings: Warnings = Field(default=[])


class LearnedList(Value):
    """Learned examples, newest first."""

    learned: list[LearnedExample]


class LearnedQuery(Value):
    """The learned examples to list."""

    candidate: CandidateId | None = None
    """By default those of all candidates."""


class UnlearnQuery(Value):
    """The learned examples to remove."""

    candidate: CandidateId
    text: str | None = None
    """The text of the example, as it is listed; by default all that the candidate has learned."""


class Unlearned(Value):
    """The result of removing learned examples."""

    version: int
    removed: int


class SearchRequest(Value):
    """A text to find replies for."""

    text: Message
    top_k: TopK = 5
    """Number of candidates to return."""
    where: Where | None = None
    """A filter: only candidates whose metadata match it are returned."""
    slots: Slots = Field(default={})
    """Values for slots. Candidates with other slots are not returned."""


class SearchAnswer(Value):
    """Candidates by decreasing score."""

    candidates: list[Selected]
    warnings: Warnings = Field(default=[])
