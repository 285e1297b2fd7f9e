"""The errors of requests: each problem type with its HTTP status.

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
    - NamespaceFull: the namespace has reached its limit of sessions, pools, aliases or bytes.
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
    - FallbackUnavailable: the fallback service of chat completions failed.
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
        self.detail = detail
        self.errors = tuple(errors)


class InvalidRequest(ServiceError):
    """Errors of fields, by their paths; the API adds the part of the request, "body" or "query"."""

    status = 422
    slug = "invalid-request"
    title = "Invalid request"

    def __init__(self, errors: Sequence[FieldError], note: str = "") -> None:
        """Take at least one field; the detail names and counts them, and ends with the note."""
        path = ".".join(map(str, errors[0].loc))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        detail = f"{errors[0].msg}{more}{note}"
        super().__init__(f"{path}: {detail}" if path else detail, errors)
        self._note = note

    @classmethod
    def field(cls, msg: str, *loc: str | int) -> Self:
        """Return the error of one field."""
        return cls([FieldError(loc, msg)])

    def within(self, part: str) -> Self:
        """Return the error with "body" or "query" before each path."""
        errors = [FieldError((part, *error.loc), error.msg) for error in self.errors]
        return type(self)(errors, self._note)


class IdempotencyMismatch(ServiceError):
    status = 422
    slug = "idempotency-mismatch"
    title = "Idempotency-Key used for another body"


class Malformed(ServiceError):
    status = 400
    slug = "malformed-request"
    title = "Not an HTTP request"


class Unauthenticated(ServiceError):
    status = 401
    slug = "unauthenticated"
    title = "API key missing, unknown or expired"


class Forbidden(ServiceError):
    status = 403
    slug = "forbidden"
    title = "API key lacks the scope"


class NotFound(ServiceError):
    status = 404
    slug = "not-found"
    title = "Not found"


class SessionNotFound(NotFound):
    slug = "session-not-found"
    title = "Session not found"


class TurnNotFound(NotFound):
    slug = "turn-not-found"
    title = "Turn not found"


class PoolNotFound(NotFound):
    slug = "pool-not-found"
    title = "Pool not found"


class CandidateNotFound(NotFound):
    slug = "candidate-not-found"
    title = "Candidate not found"


class MethodNotAllowed(ServiceError):
    status = 405
    slug = "method-not-allowed"
    title = "Method not allowed"


class BodyTooSlow(ServiceError):
    status = 408
    slug = "body-too-slow"
    title = "Body did not arrive in time"


class Conflict(ServiceError):
    status = 409
    slug = "conflict"
    title = "Conflict"


class TurnConflict(Conflict):
    slug = "turn-conflict"
    title = "Not the next turn"


class SessionStarted(Conflict):
    slug = "session-started"
    title = "Session has turns already"


class SessionFull(Conflict):
    slug = "session-full"
    title = "Session has reached its maximum number of turns"


class FeedbackFull(Conflict):
    slug = "feedback-full"
    title = "Session has reached its maximum number of events"


class PoolFull(Conflict):
    slug = "pool-full"
    title = "Pool has reached its maximum size"


class NamespaceFull(Conflict):
    slug = "namespace-full"
    title = "Namespace has reached its limit"


class BodyTooLarge(ServiceError):
    status = 413
    slug = "body-too-large"
    title = "Body too large"


class UnsupportedMedia(ServiceError):
    status = 415
    slug = "unsupported-media-type"
    title = "Content type not supported"


class HostNotAllowed(ServiceError):
    status = 421
    slug = "host-not-allowed"
    title = "Host name not allowed"


class Overloaded(ServiceError):
    status = 429
    slug = "overloaded"
    title = "Too many requests waiting"
    retry_after = 1


class RequestRateExceeded(ServiceError):
    status = 429
    slug = "request-rate-exceeded"
    title = "Too many requests a second"
    retry_after = 1


class TooManyUploads(ServiceError):
    status = 429
    slug = "too-many-uploads"
    title = "Too many uploads at once"
    retry_after = 5


class HeadTooLarge(ServiceError):
    status = 431
    slug = "head-too-large"
    title = "Headers too large"


class EncoderFailed(ServiceError):
    slug = "encoder-failed"
    title = "Encoder failed"


class Unavailable(ServiceError):
    status = 503
    slug = "unavailable"
    title = "Not available now"
    retry_after = 1


class EncoderUnavailable(Unavailable):
    slug = "encoder-unavailable"
    title = "Remote encoder not available"


class StateUnavailable(Unavailable):
    slug = "state-unavailable"
    title = "Sessions and pools not available"


class StoreUnavailable(Unavailable):
    slug = "store-unavailable"
    title = "Candidate store cannot be reached"


class FallbackUnavailable(Unavailable):
    slug = "fallback-unavailable"
    title = "Fallback service not available"


class PoolNotReady(Unavailable):
    slug = "pool-not-ready"
    title = "Pool is not ready"
    retry_after = 5


class DeadlineExceeded(Unavailable):
    slug = "deadline-exceeded"
    title = "Deadline exceeded"


class Draining(Unavailable):
    slug = "draining"
    title = "Service is stopping"
    retry_after = 5


class NotReady(Unavailable):
    slug = "not-ready"
    title = "Service is not ready"


class NotEnoughMemory(ServiceError):
    status = 507
    slug = "not-enough-memory"
    title = "Not enough memory"
