import time

from turnwise.service.sessions.step import Step
from turnwise.service.sessions.turns import Turn

POST = Turn("user", "Hello", 0.0)


def test_a_new_session_never_has_the_epoch_of_one_that_was_deleted() -> None:
    old = Step(None, (POST,), "bot", "f")
    assert old.epoch == old.epoch
    time.sleep(1e-5)
    assert Step(None, (POST,), "bot", "f").epoch > old.epoch
