"""Compares the JSON and the output that a documentation page shows with the real ones."""

import json
import math
import re

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_CLOSE = 0.02
"""How much numbers may differ from those of a page, as `index.md` promises it."""


def check_contained(shown: object, actual: object, at: str = "answer") -> None:
    """Check that an answer holds all that is shown: fields may be left out, items may not."""
    match shown, actual:
        case dict(), dict():
            assert shown.keys() <= actual.keys(), f"{at} has no {shown.keys() - actual.keys()}"
            for name, value in shown.items():
                check_contained(value, actual[name], f"{at}.{name}")
        case list(), list():
            assert len(shown) == len(actual), f"{at}: {shown} is not {actual}"
            scores = [one["score"] for one in shown if isinstance(one, dict) and "score" in one]
            assert scores == sorted(scores, reverse=True), f"{at} is not in the order of its scores"
            for place, (one, other) in enumerate(zip(shown, actual, strict=True)):
                check_contained(one, other, f"{at}[{place}]")
        case float(), float() | int():
            assert math.isclose(shown, actual, abs_tol=_CLOSE), f"{at}: {shown} is not {actual}"
        case _:
            assert shown == actual, f"{at}: {shown!r} is not {actual!r}"


def check_lines(shown: str, printed: str) -> None:
    """Check that lines were printed, in this order, whatever is between them."""
    lines = iter(printed.splitlines())
    for line in shown.splitlines():
        assert any(_same(line, other) for other in lines), f"{line!r} is not in:\n{printed}"


def _same(shown: str, printed: str) -> bool:
    """Compare two lines: words exactly, white space by where it is, numbers nearly."""
    words = shown.split()
    others = printed.split()
    if words[-1:] == ["..."]:
        words.pop()
        others = others[: len(words)]
    one = " ".join(words)
    other = " ".join(others)
    numbers = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=False)
    return _NUMBER.sub("#", one) == _NUMBER.sub("#", other) and all(
        math.isclose(float(x), float(y), abs_tol=_CLOSE) for x, y in numbers
    )


def parse_answer(printed: str) -> object:
    """Return the JSON that was printed, or that its last line is."""
    try:
        return json.loads(printed)
    except ValueError:
        return json.loads(printed.strip().splitlines()[-1])
