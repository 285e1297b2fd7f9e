from collections.abc import Callable
from itertools import combinations
from math import exp, log

import numpy as np
import pytest
import torch

from turnwise.models import scores as mixture
from turnwise.models.arrays import Float64
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.roles import EncoderKind
from turnwise.models.training import losses
from turnwise.models.training.views import Batch, View, collate

WINDOW = 5


def dialogue(turns: int, topic: str, responder: str = "B") -> View:
    texts = tuple(Utterance("AB"[t % 2], f"{topic} turn {t}") for t in range(turns))
    return View(Dialogue(topic, texts), texts, responder)


@pytest.fixture
def batch() -> Batch:
    return collate(
        [dialogue(6, "lake"), dialogue(3, "tram"), dialogue(8, "oven", "A")], EncoderKind.TRIPLE
    )


@pytest.fixture
def both_sides() -> Batch:
    """A batch with two views of the same dialogue, one of them shorter."""
    whole = dialogue(8, "oven", "A")
    other = View(whole.dialogue, whole.utterances[1:6], "B")
    return collate([dialogue(6, "lake"), whole, dialogue(3, "tram"), other], EncoderKind.TRIPLE)


def vectors_of(batch: Batch, seed: int = 0) -> losses.Vectors:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(len(batch.texts), 7, generator=generator)
    return losses.Vectors.of(torch.nn.functional.normalize(drawn, dim=-1), batch)


def unit(vector: Float64) -> Float64:
    return vector / np.sqrt((vector**2).sum())


def double(tensor: torch.Tensor) -> Float64:
    array: Float64 = tensor.numpy().astype(np.float64)
    return array


def test_pair_scores_are_those_of_ccl() -> None:
    assert [losses.pair_score(i, 5) for i in (1, 2, 3, 4)] == pytest.approx([0.8, 0.6, 0.4, 0.2])


@pytest.mark.parametrize("window", [3, 4, 5, 8])
def test_triple_scores_run_from_one_down_to_one_over_the_window(window: int) -> None:
    scores = [losses.triple_score(i, j, window) for j, i in combinations(range(1, window), 2)]
    assert max(scores) == pytest.approx(losses.triple_score(2, 1, window)) == pytest.approx(1)
    if window > 3:
        assert min(scores) == pytest.approx(1 / window)
        assert min(scores) == pytest.approx(losses.triple_score(window - 1, window - 2, window))


def test_triple_score_falls_with_distance() -> None:
    by_sum = [losses.triple_score(i, j, 5) for i, j in ((2, 1), (3, 1), (4, 1), (4, 2), (4, 3))]
    assert by_sum == sorted(by_sum, reverse=True)
    assert len(set(by_sum)) == 5


def test_a_full_window_gives_eighteen_triples() -> None:
    batch = collate([dialogue(5, "lake", "A"), dialogue(5, "tram", "A")], EncoderKind.TRIPLE)
    only_last = Batch(**{f: getattr(batch, f) for f in batch.__slots__})
    only_last.target[:, :4] = False
    examples = losses.triple_examples(
        only_last, WINDOW, np.random.default_rng(0), directional=False, curved=True
    )
    assert len(examples.score) == 2 * 18
    assert int((examples.score > 0).sum()) == 2 * 6


def test_the_last_utterance_is_a_target() -> None:
    batch = collate([dialogue(6, "lake"), dialogue(6, "tram")], EncoderKind.TRIPLE)
    examples = losses.triple_examples(
        batch, WINDOW, np.random.default_rng(0), directional=False, curved=True
    )
    assert {5, 11} <= set(examples.after.tolist())


def test_positives_are_earlier_turns_of_the_same_view_within_the_window(batch: Batch) -> None:
    examples = losses.triple_examples(
        batch, WINDOW, np.random.default_rng(0), directional=False, curved=True
    )
    width = batch.spoken.shape[1]
    wanted = {
        (v * width + i, v * width + j, v * width + k)
        for v, k in np.argwhere(batch.target)
        for i, j in combinations(range(max(0, k - WINDOW + 1), k), 2)
    }
    true = examples.score > 0
    got = zip(examples.first[true], examples.second[true], examples.after[true], strict=True)
    assert {tuple(int(x) for x in example) for example in got} == wanted


@pytest.mark.parametrize("make", [losses.pair_examples, losses.triple_examples])
def test_negatives_mix_views_or_go_backwards(make: object, batch: Batch) -> None:
    assert callable(make)
    examples = make(batch, WINDOW, np.random.default_rng(0), directional=True, curved=True)
    width = batch.spoken.shape[1]
    for first, second, after in zip(
        *(
            x[examples.score == 0].tolist()
            for x in (examples.first, examples.second, examples.after)
        ),
        strict=True,
    ):
        views = {place // width for place in (first, second, after)}
        backwards = first > second or second > after
        assert len(views) > 1 or backwards
        assert batch.target.flat[after]
        assert batch.spoken.flat[first]
        assert batch.spoken.flat[second]


@pytest.mark.parametrize("make", [losses.pair_examples, losses.triple_examples])
def test_random_negatives_are_of_other_dialogues(make: object, both_sides: Batch) -> None:
    assert callable(make)
    examples = make(both_sides, WINDOW, np.random.default_rng(0), directional=False, curved=True)
    false = examples.score == 0
    first, second, after = (
        (x[false] // both_sides.spoken.shape[1]).numpy()
        for x in (examples.first, examples.second, examples.after)
    )
    dialogue = both_sides.dialogue
    assert ((first != after) | (second != after)).all()
    for view in (first, second):
        assert ((view == after) | (dialogue[view] != dialogue[after])).all()


@pytest.mark.parametrize("make", [losses.pair_examples, losses.triple_examples])
def test_one_dialogue_alone_gives_no_random_negatives(make: object) -> None:
    assert callable(make)
    both = [dialogue(5, "lake", "A"), dialogue(5, "lake", "B")]
    for views in (both, both[:1]):
        batch = collate(views, EncoderKind.TRIPLE)
        examples = make(batch, WINDOW, np.random.default_rng(0), directional=False, curved=True)
        assert len(examples.score)
        assert (examples.score > 0).all()


def test_no_examples_give_no_loss() -> None:
    batch = collate([dialogue(2, "lake")], EncoderKind.TRIPLE)
    examples = losses.triple_examples(
        batch, WINDOW, np.random.default_rng(0), directional=False, curved=True
    )
    assert losses.curved_loss(vectors_of(batch), examples).item() == 0


def test_pairs_in_the_wrong_order_score_zero(batch: Batch) -> None:
    def backward(directional: bool) -> int:
        examples = losses.pair_examples(
            batch, WINDOW, np.random.default_rng(0), directional=directional, curved=True
        )
        width = batch.spoken.shape[1]
        same = examples.second // width == examples.after // width
        wrong = same & (examples.second > examples.after)
        assert not examples.score[wrong].any()
        return int(wrong.sum())

    assert backward(True) > 0
    assert backward(False) == 0


def test_hard_positives_all_score_one(batch: Batch) -> None:
    examples = losses.triple_examples(
        batch, WINDOW, np.random.default_rng(0), directional=False, curved=False
    )
    assert set(examples.score.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("make", [losses.pair_examples, losses.triple_examples])
def test_curved_loss_is_the_mean_over_single_examples(make: object, batch: Batch) -> None:
    assert callable(make)
    vectors = vectors_of(batch)
    examples = make(batch, WINDOW, np.random.default_rng(1), directional=True, curved=True)
    first, second, after = (
        double(x.flatten(0, 1)) for x in (vectors.first, vectors.second, vectors.after)
    )
    errors = []
    for i, j, k, score in zip(
        examples.first, examples.second, examples.after, examples.score, strict=True
    ):
        context = second[j] if make is losses.pair_examples else unit((first[i] + second[j]) / 2)
        errors.append((context @ after[k] - float(score)) ** 2)
    assert losses.curved_loss(vectors, examples).item() == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.parametrize("last_rows", [None, 1, 2, 3])
def test_queries_are_the_running_queries_of_inference(batch: Batch, last_rows: int | None) -> None:
    vectors = vectors_of(batch)
    got = losses.queries(vectors, last_rows, triple=True)
    for v, n in enumerate((6, 3, 8)):
        first, second = vectors.first[v].numpy(), vectors.second[v].numpy()
        for t in range(1, n):
            wanted = mixture.running_query(mixture.rows(first[:t], second[:t]), last_rows)
            assert got[v, t].numpy() == pytest.approx(unit(wanted.astype(np.float64)), abs=1e-5)


def test_queries_of_ccl_sum_the_context(batch: Batch) -> None:
    vectors = vectors_of(batch)
    got = losses.queries(vectors, None, triple=False)
    wanted = unit(double(vectors.second[2, :5]).sum(0))
    assert got[2, 5].numpy() == pytest.approx(wanted, abs=1e-5)


def info_nce(
    batch: Batch, vectors: losses.Vectors, queries: torch.Tensor, rivals: Callable[..., bool]
) -> float:
    """InfoNCE in both directions at scale 8; `rivals` tells of two places (view, turn)."""
    asked = [(int(v), int(t)) for v, t in np.argwhere(batch.target) if t > 0]
    scores = np.array(
        [[8.0 * double(queries[p]) @ double(vectors.after[q]) for q in asked] for p in asked]
    )
    terms = []
    for logits in (scores, scores.T):
        for p, place in enumerate(asked):
            among = [
                exp(logits[p, q]) for q, other in enumerate(asked) if q == p or rivals(place, other)
            ]
            terms.append(log(sum(among)) - logits[p, p])
    return float(np.mean(terms))


@pytest.mark.parametrize("same_dialogue", [True, False])
def test_running_query_loss_is_info_nce_both_ways(both_sides: Batch, same_dialogue: bool) -> None:
    def rivals(one: tuple[int, int], other: tuple[int, int]) -> bool:
        return same_dialogue or {one[0], other[0]} not in ({0}, {1}, {2}, {3}, {1, 3})

    vectors = vectors_of(both_sides)
    queries = losses.queries(vectors, 2, triple=True)
    wanted = info_nce(both_sides, vectors, queries, rivals)
    got = losses.running_query_loss(
        vectors, queries, torch.tensor(8.0), same_dialogue=same_dialogue
    )
    assert got.item() == pytest.approx(wanted, rel=1e-4)


def test_equal_texts_are_no_rivals() -> None:
    batch = collate(
        [dialogue(4, "lake"), dialogue(4, "lake"), dialogue(4, "tram")], EncoderKind.TRIPLE
    )
    vectors = vectors_of(batch)
    queries = losses.queries(vectors, 2, triple=True)
    wanted = info_nce(batch, vectors, queries, lambda p, q: batch.after[p] != batch.after[q])
    got = losses.running_query_loss(vectors, queries, torch.tensor(8.0), same_dialogue=True)
    assert got.item() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("topics", [("lake", "tram", "oven"), ("lake", "lake", "oven")])
def test_reach_loss_ranks_among_other_dialogues_and_within_its_own(topics: list[str]) -> None:
    views = [dialogue(6, topics[0]), dialogue(3, topics[1]), dialogue(8, topics[2], "A")]
    views.append(View(views[2].dialogue, views[2].utterances[1:6], "B"))
    batch = collate(views, EncoderKind.TRIPLE)
    vectors = vectors_of(batch)
    scale = 5.0
    spoken = [(int(v), int(t)) for v, t in np.argwhere(batch.spoken)]
    targets = [(int(v), int(t)) for v, t in np.argwhere(batch.target)]
    score = {
        (p, q): scale * double(vectors.second[p]) @ double(vectors.after[q])
        for p in spoken
        for q in targets
    }

    def twin(p: tuple[int, int], q: tuple[int, int], i: int) -> bool:
        ahead = (p[0], p[1] + i)
        return ahead in targets and bool(batch.after[ahead] == batch.after[q])

    def surprise(right: tuple[tuple[int, int], tuple[int, int]], reached: int) -> float:
        (p, q), terms = right, []
        along = [(p, other) for other in targets]
        across = [(other, q) for other in spoken]
        for pairs in (along, across):
            for own in (True, False):
                rivals = sum(
                    exp(score[a, b])
                    for a, b in pairs
                    if (a[0] == b[0] if own else batch.dialogue[a[0]] != batch.dialogue[b[0]])
                    and not (own and 0 < b[1] - a[1] <= reached)
                    and not twin(a, b, reached)
                )
                terms.append(log(1 + rivals / exp(score[right])))
        return float(np.mean(terms))

    total = weights = 0.0
    for i in range(1, WINDOW):
        pairs = [(p, q) for p, q in score if p[0] == q[0] and q[1] - p[1] == i]
        weight = (WINDOW - i) / WINDOW
        total += weight * np.mean([surprise(pair, i) for pair in pairs])
        weights += weight
    got = losses.reach_loss(vectors, torch.tensor(scale), WINDOW)
    assert got.item() == pytest.approx(total / weights, rel=1e-4)


def test_order_loss_asks_of_the_responders_utterances_which_came_first() -> None:
    views = [dialogue(8, "lake"), dialogue(5, "tram", "A"), dialogue(9, "oven")]
    batch = collate(views, EncoderKind.TRIPLE)
    vectors = vectors_of(batch)
    second, after = double(vectors.second), double(vectors.after)
    surprises = []
    for v, view in enumerate(views):
        by_responder = [
            t for t, said in enumerate(view.utterances) if said.speaker == view.responder
        ]
        for i, k in combinations(by_responder, 2):
            if k - i < WINDOW:
                margin = second[v, i] @ after[v, k] - second[v, k] @ after[v, i]
                surprises.append(log(1 + exp(-losses.ORDER_SCALE * margin)))
    assert len(surprises) == 5 + 3 + 5
    got = losses.order_loss(vectors, WINDOW)
    assert got.item() == pytest.approx(np.mean(surprises), rel=1e-4)


def test_short_dialogues_give_a_finite_loss() -> None:
    batch = collate([dialogue(2, "lake"), dialogue(2, "tram")], EncoderKind.TRIPLE)
    vectors = vectors_of(batch)
    assert bool(torch.isfinite(losses.reach_loss(vectors, torch.tensor(20.0), WINDOW)))
    assert losses.order_loss(vectors, WINDOW).item() == 0  # nobody says two utterances


@pytest.mark.parametrize("triple", [True, False])
def test_gradients_are_finite_where_views_are_padded(batch: Batch, triple: bool) -> None:
    encoded = torch.randn(len(batch.texts), 7, requires_grad=True)
    vectors = losses.Vectors.of(torch.nn.functional.normalize(encoded, dim=-1), batch)
    queries = losses.queries(vectors, 2, triple=triple)
    loss = losses.running_query_loss(vectors, queries, torch.tensor(20.0), same_dialogue=False)
    loss = loss + losses.reach_loss(vectors, torch.tensor(20.0), WINDOW)
    (loss + losses.order_loss(vectors, WINDOW)).backward()
    assert encoded.grad is not None
    assert bool(torch.isfinite(encoded.grad).all())
