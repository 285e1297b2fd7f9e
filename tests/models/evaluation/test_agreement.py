import krippendorff
import numpy as np
import pytest

from turnwise.models.evaluation.agreement import (
    Level,
    krippendorff_alpha,
    ratings_of,
    spearman_brown,
    split_half_reliability,
)
from turnwise.models.evaluation.best_worst import Answer, make_tuples

ITEMS = [f"item {number}" for number in range(24)]


def answered(noise: float, annotators: int = 4) -> list[Answer]:
    """Answers of people who see the items' true order through noise."""
    generator = np.random.default_rng(0)
    answers = []
    for three in make_tuples(ITEMS):
        for annotator in range(annotators):
            seen = [int(item.split()[1]) + noise * generator.normal() for item in three]
            best, worst = three[int(np.argmax(seen))], three[int(np.argmin(seen))]
            answers.append(Answer(three, best, worst, str(annotator)))
    return answers


@pytest.mark.parametrize("level", ["nominal", "ordinal"])
@pytest.mark.parametrize("missing", [0, 0.4, 0.8])
@pytest.mark.parametrize("spread", [0, 1, 3])
def test_alpha_is_that_of_an_independent_library(level: Level, missing: float, spread: int) -> None:
    generator = np.random.default_rng(spread)
    true = generator.integers(0, 5, 60)
    ratings = (true + generator.integers(-spread, spread + 1, (4, 60))).astype(np.float64)
    ratings[generator.random(ratings.shape) < missing] = np.nan
    theirs = krippendorff.alpha(reliability_data=ratings, level_of_measurement=level)
    assert krippendorff_alpha(ratings, level) == pytest.approx(theirs)


def test_alpha_of_answers_is_that_of_an_independent_library() -> None:
    ratings = ratings_of(answered(noise=6))
    theirs = krippendorff.alpha(reliability_data=ratings, level_of_measurement="ordinal")
    assert krippendorff_alpha(ratings, "ordinal") == pytest.approx(theirs)


def test_alpha_is_one_for_full_agreement_and_about_none_for_chance() -> None:
    agreed, by_chance = (ratings_of(answered(noise)) for noise in (0, 1e9))
    assert krippendorff_alpha(agreed, "nominal") == pytest.approx(1)
    assert krippendorff_alpha(by_chance, "nominal") == pytest.approx(0, abs=0.1)


def test_alpha_needs_units_with_two_ratings_and_two_values() -> None:
    assert krippendorff_alpha(np.array([[1, np.nan], [np.nan, 2]]), "nominal") is None
    assert krippendorff_alpha(np.ones((2, 3)), "ordinal") is None


def test_a_rating_is_one_item_of_a_tuple_however_that_was_ordered() -> None:
    answers = [Answer(("b", "a", "c"), "a", "c", "q"), Answer(("a", "b", "c"), "b", "c", "p")]
    assert ratings_of(answers).tolist() == [[0, 1, -1], [1, 0, -1]]


def test_an_annotator_who_saw_a_tuple_not_has_no_rating_of_it() -> None:
    answers = [Answer(("a", "b", "c"), "a", "c", "p"), Answer(("a", "b", "d"), "a", "d", "q")]
    ratings = ratings_of(answers)
    assert np.isnan(ratings).sum(axis=1).tolist() == [3, 3]


def test_halves_agree_where_annotators_do() -> None:
    same, close, chance = (split_half_reliability(answered(noise)) for noise in (0, 4, 1e9))
    assert same == pytest.approx(1)
    assert same > close > 0.7
    assert abs(chance) < 0.3


def test_halves_are_dealt_tuple_by_tuple() -> None:
    answers = [Answer(("a", "b", "c"), "a", "c", name) for name in "pqrs"]
    answers += [Answer(("a", "b", "d"), "d", "b", name) for name in "pqrs"]
    # Every half sees every tuple twice, so all halves score alike.
    assert split_half_reliability(answers) == pytest.approx(1)


def test_halves_of_too_few_items_have_no_reliability() -> None:
    assert split_half_reliability([Answer(("a", "b", "c"), "a", "c", "p")]) is None


def test_the_seed_decides() -> None:
    answers = answered(4, annotators=3)
    first, again, other = (split_half_reliability(answers, 5, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_the_whole_is_more_reliable_than_a_half() -> None:
    assert spearman_brown(0.5) == pytest.approx(2 / 3)
    assert spearman_brown(1.0) == 1


@pytest.mark.parametrize("half", [-1.0, np.nextafter(-1, 0), np.nextafter(-1, -2)])
def test_halves_that_contradict_each_other_have_no_whole(half: float) -> None:
    assert spearman_brown(half) is None
