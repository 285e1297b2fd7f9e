import pytest

from turnwise.service.sessions.turns import Turn
from turnwise.service.use_cases.chat import missing_turns


def turns(said: str) -> list[Turn]:
    """Turns of the user and the bot, a word each; the user's are written in lower case."""
    return [Turn("user" if word.islower() else "bot", word, 0.0) for word in said.split()]


@pytest.mark.parametrize(
    ("kept", "given", "missing"),
    [
        ("", "a B c", "a B c"),
        ("a", "a B c", "B c"),
        ("a B c", "a B c", ""),
        ("a B c", "B c", ""),
        ("a B c", "c", ""),
        ("a B c", "c D e", "D e"),
        ("x Y a B c", "a B c D e", "D e"),
        ("a B a", "a B a C a", "C a"),  # a text that comes again
        ("a B a", "a C a", "C a"),
        ("a B c", "d", "d"),
        ("a B c", "x Y z", "z"),  # the client has changed what was said
        ("a B c", "a B d", "d"),
    ],
)
def test_the_turns_that_a_session_lacks(kept: str, given: str, missing: str) -> None:
    assert missing_turns(turns(kept), turns(given)) == turns(missing)
