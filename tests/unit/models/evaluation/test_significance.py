import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.models.evaluation import significance
from turnwise.models.evaluation.significance import Outcomes, p_values

EXAMPLE = st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from("ab"), st.integers(0, 8))
EXAMPLES = st.lists(EXAMPLE, min_size=1, max_size=20)
RESAMPLES = 200


def pair(examples: list[tuple[int, int, str, int]]) -> tuple[Outcomes, Outcomes]:
    one, other, names, dialogues = map(np.array, zip(*examples, strict=True))
    return (
        Outcomes(one.astype(np.float64), names, dialogues),
        Outcomes(other.astype(np.float64), names, dialogues),
    )


def alone(values: np.ndarray) -> Outcomes:
    """One setting, and a dialogue for each example."""
    return Outcomes(values, np.full(len(values), ""), np.arange(len(values)))


def mean_of_settings(values: list[float], names: list[str], of: set[str]) -> float:
    """A setting without an example counts 0."""
    by_name = {name: [v for v, n in zip(values, names, strict=True) if n == name] for name in of}
    return float(np.mean([np.mean(own) if own else 0.0 for own in by_name.values()]))


def naive_p(examples: list[tuple[int, int, str, int]]) -> float:
    """The definition, example by example, over the same resamples."""
    differences = [float(other - one) for one, other, _, _ in examples]
    names = [e[2] for e in examples]
    dialogues = [e[3] for e in examples]
    distinct = sorted(set(dialogues))
    mean = {
        name: np.mean([d for d, n in zip(differences, names, strict=True) if n == name])
        for name in set(names)
    }
    shifted = [float(d - mean[name]) for d, name in zip(differences, names, strict=True)]
    observed = abs(mean_of_settings(differences, names, set(names)))
    as_far = 0
    for times in np.concatenate(list(significance.draw_resamples(len(distinct)))):
        drawn = [
            n
            for dialogue, count in zip(distinct, times, strict=True)
            for n in np.flatnonzero(np.array(dialogues) == dialogue).tolist() * int(count)
        ]
        again = [shifted[n] for n in drawn], [names[n] for n in drawn]
        as_far += abs(mean_of_settings(*again, set(names))) >= observed - 1e-9
    return max((as_far + 1) / (RESAMPLES + 1), 0.5 ** (len(distinct) - 1))


@given(EXAMPLES)
@settings(max_examples=25)
def test_p_is_that_of_the_definition(examples: list[tuple[int, int, str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(significance, "RESAMPLES", RESAMPLES)
        one, other = pair(examples)
        assert p_values(one, [other]) == pytest.approx([naive_p(examples)])


@given(EXAMPLES)
def test_the_error_is_that_of_the_definition(examples: list[tuple[int, int, str, int]]) -> None:
    outcomes, _ = pair(examples)
    names = {name for _, _, name, _ in examples}
    own = {name: [value for value, _, n, _ in examples if n == name] for name in names}
    added: dict[int, float] = {}
    for value, _, name, dialogue in examples:
        share = (value - np.mean(own[name])) / len(own[name]) / len(names)
        added[dialogue] = added.get(dialogue, 0.0) + share
    dialogues = len(added)
    assert outcomes.mean == pytest.approx(np.mean([np.mean(values) for values in own.values()]))
    if dialogues == 1:
        assert outcomes.standard_error is None
    else:
        variance = sum(each**2 for each in added.values()) * dialogues / (dialogues - 1)
        assert outcomes.standard_error == pytest.approx(np.sqrt(variance))


def test_equal_systems_have_p_1_and_different_ones_a_small_p() -> None:
    values = np.random.default_rng(0).normal(10, 3, 100)
    better = values - 2 + np.tile([0.1, -0.1], 50)
    alike = values + np.tile([1.0, -1.0], 50)
    same, small, one = p_values(alone(values), [alone(v) for v in (values, better, alike)])
    assert same == one == 1
    assert small == 1 / (significance.RESAMPLES + 1)
    assert p_values(alone(values), []) == []
