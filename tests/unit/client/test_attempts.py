import pytest

from turnwise.service.client import attempts as module
from turnwise.service.client.attempts import Attempts
from turnwise.service.client.errors import ClientError

DEADLINE = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FailedError(ClientError):
    def __init__(
        self,
        *,
        temporary: bool = True,
        undone: bool = False,
        refused: bool = False,
        retry_after: float | None = None,
    ) -> None:
        self.temporary = temporary
        self.undone = undone
        self.refused = refused
        self.retry_after = retry_after


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "monotonic", made)
    return made


def attempts(*, repeatable: bool = True) -> Attempts:
    return Attempts(repeatable=repeatable, timeout=15.0, deadline=DEADLINE)


def test_pauses_grow_up_to_some_seconds() -> None:
    call = attempts()
    pauses = [call.pause(FailedError()) for _ in range(10)]
    assert all(0.05 <= pauses[n] / 2**n <= 0.1 for n in range(5))
    assert all(2.5 <= pause <= 5.0 for pause in pauses[6:])


def test_no_pause_is_shorter_than_the_service_asks_for() -> None:
    call = attempts()
    assert not call.again
    assert call.pause(FailedError(retry_after=7.0)) == 7.0
    assert call.again
    assert call.pause(FailedError(retry_after=0.0)) > 0


def test_a_call_that_certainly_did_nothing_does_not_count() -> None:
    call = attempts()
    call.pause(FailedError(undone=True))
    assert not call.again
    call.pause(FailedError())
    call.pause(FailedError(undone=True))
    assert call.again


def test_nothing_begins_after_the_deadline(clock: Clock) -> None:
    call = attempts()
    error = FailedError(retry_after=5.0)
    clock.now = DEADLINE - 6
    assert call.pause(error) == 5.0
    clock.now = DEADLINE - 4
    with pytest.raises(FailedError) as caught:
        call.pause(error)
    assert caught.value is error


def test_a_refused_connection_is_retried_for_a_second(clock: Clock) -> None:
    call = attempts()
    refused = FailedError(undone=True, refused=True)
    call.pause(refused)
    clock.now = 0.7
    call.pause(refused)
    clock.now = 0.9
    call.pause(FailedError())  # somebody listens, so the second begins again
    clock.now = 1.1
    call.pause(refused)
    clock.now = 2.1
    with pytest.raises(FailedError):
        call.pause(refused)


def test_an_attempt_has_no_more_time_than_is_left(clock: Clock) -> None:
    call = attempts()
    assert call.timeout == 15.0
    clock.now = DEADLINE - 4
    assert call.timeout == 4.0


def test_a_permanent_error_is_not_retried() -> None:
    with pytest.raises(FailedError):
        attempts().pause(FailedError(temporary=False))


def test_a_call_that_may_have_arrived_is_retried_only_if_repeatable() -> None:
    with pytest.raises(FailedError):
        attempts(repeatable=False).pause(FailedError())
    assert attempts(repeatable=False).pause(FailedError(undone=True)) > 0


def test_only_new_progress_begins_the_deadline_anew(clock: Clock) -> None:
    call = attempts()
    for done in (256, 512):
        clock.now += DEADLINE + 1
        call.advance(done)
        assert call.pause(FailedError()) <= 0.1
    clock.now += DEADLINE + 1
    call.advance(512)
    with pytest.raises(FailedError):
        call.pause(FailedError())
