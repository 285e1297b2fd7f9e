"""Groups: candidates that are wordings of one answer."""

from collections.abc import Hashable, Iterable, Sequence


def best_wordings(groups: Iterable[Hashable | None]) -> list[int]:
    """Return the indices of the best candidate of each group, best first.

    Args:
        groups: The group of each candidate, from the best candidate to the worst; None for an
            answer of its own.
    """
    kept: list[int] = []
    seen: set[Hashable] = set()
    for index, group in enumerate(groups):
        if group is None or group not in seen:
            kept.append(index)
            seen.add(group)
    return kept


def next_answer(groups: Sequence[Hashable | None]) -> int | None:
    """Return the index of the best candidate outside the first one's group, or None.

    The confidence takes its margin from the first candidate to this one, since another wording of
    the same answer is not a rival.
    """
    answers = best_wordings(groups)
    return answers[1] if len(answers) > 1 else None
