import pytest

from turnwise.models.groups import best_wordings, next_answer


@pytest.mark.parametrize(
    ("groups", "best", "following"),
    [
        ([], [], None),
        (["a"], [0], None),
        (["a", "a", "b", "a", "b", "c"], [0, 2, 5], 2),
        ([None, None, "a"], [0, 1, 2], 1),
        (["a", "a", None], [0, 2], 2),
        (["a", "a"], [0], None),
    ],
)
def test_a_group_counts_once_with_its_best_candidate(
    groups: list[str | None], best: list[int], following: int | None
) -> None:
    assert best_wordings(groups) == best
    assert next_answer(groups) == following
