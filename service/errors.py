"""Errors that a request can fail with: each problem type and its HTTP status, 400 to 507.

- ServiceError: any of them; a class has `status`, `slug` and `title`, an instance `detail`.
  - InvalidRequest 422: fields have invalid values; `errors` lists them.
  - IdempotencyMismatch 422: an earlier request with this Idempotency-Key had another body.
  - Malformed 400: the bytes are not an HTTP request.
  - Unauthenticated 401: there is no API key, or it is unknown or has expired.
  - Forbidden 403: the API key lacks the scope.
  - NotFound 404: nothing has that name.
    - SessionNotFound, TurnNotFound, PoolNotFound, CandidateNotFound
  - MethodNotAllowed 405: the resource does not have this method.
  - BodyTooSlow 408: the body did not arrive in time.
  - Conflict 409: the resource is not in the state that the request expects.
    - TurnConflict: `expected_turn` is not the next turn.
    - SessionStarted: the session has turns, so its responder cannot change.
    - SessionFull, PoolFull: the session or the pool has reached its limit.
    - FeedbackFull: the session has as many events of feedback as it may.
    - NamespaceFull: the namespace has reached its limit of sessions, pools or bytes of pools.
  - BodyTooLarge 413: the body has more bytes than the limit.
  - UnsupportedMedia 415: the resource does not accept this content type.
  - HostNotAllowed 421: the service does not answer to the name in the header `Host`.
  - Overloaded 429: a queue is full; the client should retry later.
  - RequestRateExceeded 429: the namespace sends more requests a second than it may.
  - TooManyUploads 429: the namespace has as many uploads at once as it may.
  - HeadTooLarge 431: the request line and the headers have more bytes than the limit.
  - EncoderFailed 500: the model failed on this batch.
  - Unavailable 503: the client should retry later.
    - EncoderUnavailable: the remote encoder cannot be reached, or answers with errors.
    - StateUnavailable: Redis cannot be reached.
    - StoreUnavailable: the candidate store of a pool cannot be reached.
    - PoolNotReady: this replica cannot serve the pool now, for example while it reads it.
    - DeadlineExceeded: the work took too long and was dropped.
    - Draining: the service is stopping.
    - NotReady: the service cannot take requests; `errors` names the failed checks.
  - NotEnoughMemory 507: this replica has too little memory for the work.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

from turnwise.models.errors import TurnwiseError
from turnwise.service.wire.problems import FieldError


class ServiceError(TurnwiseError):
    """Any error of a request; see the tree at the top of the module."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"
    retry_after: ClassVar[int | None] = None
    """Seconds after which a client should retry."""

    def __init__(self, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.detail, self.errors = detail, tuple(errors)


class InvalidRequest(ServiceError):
    """Errors of fields, by their paths in the value; the API adds the place: "body" or "query"."""

    status, slug, title = 422, "invalid-request", "Invalid request"

    def __init__(self, errors: Sequence[FieldError], note: str = "") -> None:
        """Take at least one field; the detail names the first one and ends with the note."""
        path, msg = ".".join(map(str, errors[0].loc)), errors[0].msg
        super().__init__(f"{path}: {msg}{note}" if path else f"{msg}{note}", errors)
        self._note = note

    @classmethod
    def field(cls, msg: str, *loc: str | int) -> Self:
        """Return the error of one field."""
        return cls([FieldError(loc, msg)])

    def within(self, place: str) -> Self:
        """Return the error with "body" or "query" before each path."""
        errors = [FieldError((place, *error.loc), error.msg) for error in self.errors]
        return type(self)(errors, self._note)


class IdempotencyMismatch(ServiceError):
    status, slug, title = 422, "idempotency-mismatch", "Idempotency-Key used for another body"


class Malformed(ServiceError):
    status, slug, title = 400, "malformed-request", "Not an HTTP request"


class Unauthenticated(ServiceError):
    status, slug, title = 401, "unauthenticated", "API key missing, unknown or expired"


class Forbidden(ServiceError):
    status, slug, title = 403, "forbidden", "API key lacks the scope"


class NotFound(ServiceError):
    status, slug, title = 404, "not-found", "Not found"


class SessionNotFound(NotFound):
    slug, title = "session-not-found", "Session not found"


class TurnNotFound(NotFound):
    slug, title = "turn-not-found", "Turn not found"


class PoolNotFound(NotFound):
    slug, title = "pool-not-found", "Pool not found"


class CandidateNotFound(NotFound):
    slug, title = "candidate-not-found", "Candidate not found"


class MethodNotAllowed(ServiceError):
    status, slug, title = 405, "method-not-allowed", "Method not allowed"


class BodyTooSlow(ServiceError):
    status, slug, title = 408, "body-too-slow", "Body did not arrive in time"


class Conflict(ServiceError):
    status, slug, title = 409, "conflict", "Conflict"


class TurnConflict(Conflict):
    slug, title = "turn-conflict", "Not the next turn"


class SessionStarted(Conflict):
    slug, title = "session-started", "Session has turns already"


class SessionFull(Conflict):
    slug, title = "session-full", "Session has reached its maximum number of turns"


class FeedbackFull(Conflict):
    slug, title = "feedback-full", "Session has reached its maximum number of events"


class PoolFull(Conflict):
    slug, title = "pool-full", "Pool has reached its maximum size"


class NamespaceFull(Conflict):
    slug, title = "namespace-full", "Namespace has reached its limit"


class BodyTooLarge(ServiceError):
    status, slug, title = 413, "body-too-large", "Body too large"


class UnsupportedMedia(ServiceError):
    status, slug, title = 415, "unsupported-media-type", "Content type not supported"


class HostNotAllowed(ServiceError):
    status, slug, title = 421, "host-not-allowed", "Host name not allowed"


class Overloaded(ServiceError):
    status, slug, title, retry_after = 429, "overloaded", "Too many requests waiting", 1


class RequestRateExceeded(ServiceError):
    status, slug, title, retry_after = 429, "request-rate-exceeded", "Too many requests a second", 1


class TooManyUploads(ServiceError):
    status, slug, title, retry_after = 429, "too-many-uploads", "Too many uploads at once", 5


class HeadTooLarge(ServiceError):
    status, slug, title = 431, "head-too-large", "Headers too large"


class EncoderFailed(ServiceError):
    slug, title = "encoder-failed", "Encoder failed"


class Unavailable(ServiceError):
    status, slug, title, retry_after = 503, "unavailable", "Not available now", 1


class EncoderUnavailable(Unavailable):
    slug, title = "encoder-unavailable", "Remote encoder not available"


class StateUnavailable(Unavailable):
    slug, title = "state-unavailable", "Redis cannot be reached"


class StoreUnavailable(Unavailable):
    slug, title = "store-unavailable", "Candidate store cannot be reached"


class PoolNotReady(Unavailable):
    slug, title, retry_after = "pool-not-ready", "Pool is not ready", 5


class DeadlineExceeded(Unavailable):
    slug, title = "deadline-exceeded", "Deadline exceeded"


class Draining(Unavailable):
    slug, title, retry_after = "draining", "Service is stopping", 5


class NotReady(Unavailable):
    slug, title = "not-ready", "Service is not ready"


class NotEnoughMemory(ServiceError):
    status, slug, title = 507, "not-enough-memory", "Not enough memory"
