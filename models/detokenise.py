"""Converts texts between natural spelling and the one of tokenised corpora ("I don ' t know .").

`detokenise` turns the second into the first and `tokenise` the first into the second, so that
training can use both. Numbers (3.5, 5:30), hyphens, addresses and the stops inside abbreviations
stay whole in both, as they do in those corpora. Runs of white space become one space, and curly
quotation marks and apostrophes between spaces become straight ones.
"""

import re
from collections.abc import Callable

_Replacement = str | Callable[[re.Match[str]], str]
_Rules = tuple[tuple[re.Pattern[str], _Replacement], ...]

_LETTER = r"[^\W\d_]"
"""A letter of any alphabet."""
_ENDINGS = r"(?=(?:s|t|m|d|re|ve|ll)(?![\w']))"
"""The position before the end of a contraction, such as "s" in "it's"."""
_BEGINNINGS = r"\b([o0cy]|ma)"
"""The beginning of o'clock, O'Neill, c'mon, y'all, ma'am."""
_APART = r" '(?!\S)"
"""A single mark between spaces."""
_UP_TO = rf"(?:(?!{_APART}).)*"
"""Everything up to the next mark between spaces."""
_EVENLY = rf"(?:{_APART}{_UP_TO}{_APART}{_UP_TO})*$"
"""An even number of marks between spaces, up to the end of the text."""
_OPENS = r"(?<![^\s\"'(])"
"""The position where a quotation or a bracket may open: after a space or another opening one."""


def _rules(*rules: tuple[str, _Replacement]) -> _Rules:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rules)


def _separate_marks(marks: re.Match[str]) -> str:
    return " ".join(["", *re.findall(r"\.{2,}|.", marks[0]), ""])


_JOIN = _rules(
    (r"(?<!\S)[\u2018\u2019](?!\S)", "'"),  # curly marks become straight
    (r"(?<!\S)[\u201c\u201d](?!\S)", '"'),
    (r"(?i)(?<=[^\W_]) ' ?" + _ENDINGS, "'"),  # it ' s
    (rf"(?i)(?<={_LETTER}) (?=n't\b)", ""),  # do n't
    (rf"(?i){_BEGINNINGS} ' (?={_LETTER})", r"\1'"),  # o ' clock
    (r'(?<!\S)" ([^"]*?) "(?!\S)', r'"\1"'),  # " Yes . "
    # After s a single mark may be a possessive. It opens a quotation if the quotation ends in
    # another letter, and if all later marks still come in pairs.
    (
        rf"(?<!\S)' (?:(?<!s ' )({_UP_TO})|({_UP_TO})(?<!s)(?={_APART}{_UP_TO}{_EVENLY})){_APART}",
        r"'\1\2'",
    ),
    (r"(?<=s) '(?!\S)", "'"),  # the boys ' room
    (r"(?<=\d) ([.:]) (?=\d)", r"\1"),  # 3 . 5 and 5 : 30
    (rf"(?<![\w'.])({_LETTER}) \. (?={_LETTER} \.)", r"\1."),  # U . S . and p . m .
    (r" (?=[.,!?…]+[\"')\]]*(?!\S)|[:;](?!\S)|[.?!][A-Z][a-z'])", ""),  # know .
    (r"(?<=[(\[]) | (?=[)\]])", ""),  # ( a note )
    (r"(?<=[$£€¥]) (?=\d)|(?<=\d) (?=%)", ""),  # $ 5 and 5 %
)

_SPLIT = _rules(
    (_OPENS + r"\(([^()]*)\)(?!\w)", r" ( \1 ) "),
    (_OPENS + r'"([^"]*)"(?!\w)', r' " \1 " '),
    (rf"{_OPENS}'((?:[^']|\b'\b)+)'(?!\w)", r" ' \1 ' "),
    (r"(?i)(?<=[^\W_])'" + _ENDINGS, " ' "),
    (rf"(?i){_BEGINNINGS}'(?={_LETTER})", r"\1 ' "),
    (r"(?<=s)'(?!\w)", " ' "),
    (r"(?<![.,!?;:…])[.,!?;:…]++(?!\S)", _separate_marks),
    (r"(?<=[$£€¥])(?=\d)|(?<=\d)(?=%)", " "),
)

_ADDRESS = re.compile(r"[/@]|www\.", re.IGNORECASE)
_LOST_SPACE = re.compile(r"(?:(?<=[a-z0-9])|(?<=[A-Z]{2}))([.?!])(?=[A-Z][a-z']|[AI]\b)")


def detokenise(text: str) -> str:
    """Return spaced text in natural spelling; natural text stays as it is.

    The space that is missing after a full stop before a capital ("far.Can") is added.
    """
    # Closing one gap may reveal the next. The loop ends, since no rule undoes another.
    while (spelt := _close_up(text)) != text:
        text = spelt
    return text


def tokenise(text: str) -> str:
    """Return natural text in spaced spelling; `detokenise` restores ordinary sentences."""
    return " ".join(_apply(_SPLIT, text).split())


def _apply(rules: _Rules, text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _close_up(text: str) -> str:
    spelt = _apply(_JOIN, " ".join(text.split()))
    words = (
        word if _ADDRESS.search(word) else _LOST_SPACE.sub(r"\1 ", word) for word in spelt.split()
    )
    return " ".join(words)
