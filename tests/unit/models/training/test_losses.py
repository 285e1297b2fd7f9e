import doctest
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from math import exp, log

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from tests.unit.models.training.conftest import both_sides, dialogue
from turnwise.models import scores as mixture
from turnwise.models.arrays import Float64
from turnwise.models.data import Preferred
from turnwise.models.encoder.head_arrays import HEADS
from turnwise.models.encoder.heads import RoleHeads
from turnwise.models.roles import EncoderKind, Role
from turnwise.models.training import losses
from turnwise.models.training.windows import (
    Examples,
    WindowBatch,
    collate,
    pair_examples,
    triple_examples,
)

WINDOW = 5


@pytest.fixture
def batch() -> WindowBatch:
    return collate(
        [dialogue(6, "lake"), dialogue(3, "tram"), dialogue(8, "oven", "A")], EncoderKind.TRIPLE
    )


def vectors_of(batch: WindowBatch, seed: int = 0) -> losses.Vectors:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(len(batch.items), 7, generator=generator)
    return losses.Vectors.of(torch.nn.functional.normalize(drawn, dim=-1), batch)


def unit(vector: Float64) -> Float64:
    return vector / np.sqrt((vector**2).sum())


def double(tensor: torch.Tensor) -> Float64:
    array: Float64 = tensor.numpy().astype(np.float64)
    return array


def test_the_examples_of_the_docstrings_run() -> None:
    results = doctest.testmod(losses)
    assert results.attempted
    assert results.failed == 0


@pytest.mark.parametrize(
    "makes", [(pair_examples,), (triple_examples,), (pair_examples, triple_examples)]
)
def test_curved_loss_is_the_mean_over_all_examples(
    makes: tuple[Callable[..., Examples], ...], batch: WindowBatch
) -> None:
    vectors = vectors_of(batch)
    first, second, after = (
        double(x.flatten(0, 1)) for x in (vectors.first, vectors.second, vectors.after)
    )
    examples = [
        make(batch, WINDOW, np.random.default_rng(1), directional=True, curved=True)
        for make in makes
    ]
    errors = []
    for make, of_kind in zip(makes, examples, strict=True):
        rows = zip(of_kind.first, of_kind.second, of_kind.after, of_kind.score, strict=True)
        for i, j, k, score in rows:
            context = second[j] if make is pair_examples else unit((first[i] + second[j]) / 2)
            errors.append((context @ after[k] - float(score)) ** 2)
    loss = losses.curved_loss(vectors, *examples).item()
    assert loss == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("last_rows", [None, 1, 2, 3])
def test_queries_are_the_running_queries_of_inference(
    batch: WindowBatch, last_rows: int | None, paired: bool
) -> None:
    vectors = vectors_of(batch)
    got = losses.running_queries(vectors, last_rows, paired=paired)
    for v, n in enumerate((6, 3, 8)):
        first = vectors.first[v].numpy()
        second = vectors.second[v].numpy()
        for t in range(1, n):
            rows = mixture.rows(first[: t * paired], second[:t])
            wanted = mixture.running_query(rows, last_rows, paired=paired)
            assert got[v, t].numpy() == pytest.approx(unit(wanted.astype(np.float64)), abs=1e-5)


def info_nce(
    batch: WindowBatch, vectors: losses.Vectors, queries: torch.Tensor, rivals: Callable[..., bool]
) -> float:
    """InfoNCE in both directions at scale 8; `rivals` tells of two places (window, turn)."""
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


@pytest.mark.parametrize("topics", [("lake", "oven", "tram"), ("lake", "oven", "lake")])
@pytest.mark.parametrize("same_dialogue", [True, False])
def test_running_query_loss_is_info_nce_both_ways_without_copies_of_the_right_text(
    topics: tuple[str, str, str], same_dialogue: bool
) -> None:
    batch = collate(both_sides(*topics), EncoderKind.TRIPLE)

    def rivals(one: tuple[int, int], other: tuple[int, int]) -> bool:
        same = batch.dialogue[one[0]] == batch.dialogue[other[0]]
        return bool(batch.after[one] != batch.after[other] and (same_dialogue or not same))

    vectors = vectors_of(batch)
    queries = losses.running_queries(vectors, 2, paired=True)
    wanted = info_nce(batch, vectors, queries, rivals)
    got = losses.running_query_loss(
        vectors, queries, torch.tensor(8.0), same_dialogue=same_dialogue
    )
    assert got.item() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("topics", [("lake", "oven", "tram"), ("lake", "oven", "lake")])
def test_reach_loss_ranks_among_other_dialogues_and_within_its_own(topics: list[str]) -> None:
    batch = collate(both_sides(*topics), EncoderKind.TRIPLE)
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
        (p, q) = right
        terms = []
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


@pytest.mark.parametrize(("window_length", "pairs"), [(4, 3 + 2 + 3), (5, 5 + 3 + 5)])
def test_order_loss_asks_of_the_responders_utterances_which_came_first(
    window_length: int, pairs: int
) -> None:
    windows = [dialogue(8, "lake"), dialogue(5, "tram", "A"), dialogue(9, "oven")]
    batch = collate(windows, EncoderKind.TRIPLE)
    vectors = vectors_of(batch)
    second = double(vectors.second)
    after = double(vectors.after)
    surprises = []
    for v, window in enumerate(windows):
        by_responder = [
            t for t, said in enumerate(window.utterances) if said.speaker == window.responder
        ]
        for i, k in combinations(by_responder, 2):
            if k - i < window_length:
                margin = second[v, i] @ after[v, k] - second[v, k] @ after[v, i]
                surprises.append(log(1 + exp(-losses.ORDER_SCALE * margin)))
    assert len(surprises) == pairs
    got = losses.order_loss(vectors, window_length)
    assert got.item() == pytest.approx(np.mean(surprises), rel=1e-4)


def test_short_dialogues_give_a_finite_loss() -> None:
    batch = collate([dialogue(2, "lake"), dialogue(2, "tram")], EncoderKind.TRIPLE)
    vectors = vectors_of(batch)
    triples = triple_examples(
        batch, WINDOW, np.random.default_rng(0), directional=False, curved=True
    )
    assert torch.isfinite(losses.reach_loss(vectors, torch.tensor(20.0), WINDOW))
    assert losses.order_loss(vectors, WINDOW).item() == 0  # nobody says two utterances
    assert losses.curved_loss(vectors, triples.only(triples.score > 0)).item() == 0


def test_gradients_are_finite_where_windows_are_padded(batch: WindowBatch) -> None:
    encoded = torch.randn(len(batch.items), 7, requires_grad=True)
    vectors = losses.Vectors.of(torch.nn.functional.normalize(encoded, dim=-1), batch)
    queries = losses.running_queries(vectors, 2, paired=True)
    loss = losses.running_query_loss(vectors, queries, torch.tensor(20.0), same_dialogue=False)
    loss = loss + losses.reach_loss(vectors, torch.tensor(20.0), WINDOW)
    (loss + losses.order_loss(vectors, WINDOW)).backward()
    assert encoded.grad is not None
    assert bool(torch.isfinite(encoded.grad).all())


def test_what_was_passed_over_is_a_rival_of_its_target_only() -> None:
    whole = dialogue(6, "lake")
    said = list(whole.utterances)
    said[3] = Preferred("B", said[3].text, ("no", "never", said[1].text))
    windows = [replace(whole, utterances=tuple(said)), dialogue(4, "tram")]
    batch = collate(windows, EncoderKind.TRIPLE)
    vectors = vectors_of(batch)
    assert batch.preferred.tolist() == [3, 3, 3]
    queries = losses.running_queries(vectors, None, paired=True)
    got = losses.running_query_loss(vectors, queries, torch.tensor(8.0), same_dialogue=True)
    places = [(v, t) for v, t in zip(*batch.target.nonzero(), strict=True) if t]
    after = np.stack([double(vectors.after[v, t]) for v, t in places])
    asked = np.stack([double(queries[v, t]) for v, t in places])
    logits = 8 * asked @ after.T
    back = [log(sum(map(exp, column))) - column[n] for n, column in enumerate(logits.T)]
    forth = []
    for n, (row, place) in enumerate(zip(logits, places, strict=True)):
        rivals = 8 * double(vectors.passed_over) @ asked[n] if place == (0, 3) else []
        forth.append(log(sum(map(exp, [*row, *rivals]))) - row[n])
    assert got.item() == pytest.approx((np.mean(forth) + np.mean(back)) / 2, rel=1e-5)


def test_a_supposed_utterance_is_compared_with_one_that_was_said() -> None:
    batch = collate(both_sides(), EncoderKind.HEADS)
    drawn = torch.randn(len(batch.items), 7, generator=torch.Generator().manual_seed(0))
    drawn.requires_grad_()
    torch.manual_seed(0)
    heads = RoleHeads(7)
    torch.nn.init.normal_(heads.down, std=0.3)
    vectors = losses.Vectors.of(torch.nn.functional.normalize(drawn, dim=-1), batch, heads)
    turns = np.argwhere(batch.spoken)
    distances = [
        1 - double(vectors.supposed.detach())[v, t] @ double(vectors.second.detach())[v, t]
        for v, t in turns
    ]
    loss = losses.supposed_loss(vectors)
    assert loss.item() == pytest.approx(np.mean(distances), abs=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert heads.linear.grad is not None
    assert drawn.grad is None or not drawn.grad.any()
    learns = [bool(gradient.any()) for gradient in heads.linear.grad]
    assert learns == [role is Role.SUPPOSED for role, _ in HEADS]


def test_distillation_compares_vectors_and_scores() -> None:
    drawn = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(0))
    vectors, taught = torch.nn.functional.normalize(drawn, dim=-1)
    ours = (vectors[:4], vectors[4:])
    theirs = (taught[:4], taught[4:])
    scores, wanted_scores = (
        20 * double(context) @ double(after).T for after, context in (ours, theirs)
    )
    divergences = [
        np.mean(
            [
                entropy(softmax(wanted), softmax(row))
                for row, wanted in zip(of_ours, of_theirs, strict=True)
            ]
        )
        for of_ours, of_theirs in ((scores, wanted_scores), (scores.T, wanted_scores.T))
    ]
    distances = 1 - (double(vectors) * double(taught)).sum(-1)
    wanted = distances.mean() + losses.SCORE_SHARE * np.mean(divergences)
    assert losses.distillation_loss(ours, theirs).item() == pytest.approx(wanted, rel=1e-5)
    assert losses.distillation_loss(theirs, theirs).item() == pytest.approx(0, abs=1e-6)


def test_similarities_are_compared_with_those_of_a_teacher_of_another_size() -> None:
    generator = torch.Generator().manual_seed(0)
    unit_rows = torch.nn.functional.normalize
    vectors = unit_rows(torch.randn(6, 7, generator=generator), dim=-1)
    taught = unit_rows(torch.randn(6, 4, generator=generator), dim=-1)
    divergences = []
    for row in range(6):
        others = [other for other in range(6) if other != row]
        ours = softmax(9.0 * double(vectors)[others] @ double(vectors)[row])
        theirs = softmax(20.0 * double(taught)[others] @ double(taught)[row])
        divergences.append(entropy(theirs, ours))
    loss = losses.similarity_loss(vectors, taught, torch.tensor(9.0))
    assert loss.item() == pytest.approx(np.mean(divergences), rel=1e-5)
    same = losses.similarity_loss(vectors, vectors, torch.tensor(losses.SCORE_SCALE))
    assert same.item() == pytest.approx(0, abs=1e-6)


def test_the_right_reply_of_a_minimal_pair_is_to_beat_the_other_one() -> None:
    batch = collate(
        [dialogue(n, topic) for n, topic in ((2, "lake"), (2, "tram"), (6, "oven"), (4, "moon"))],
        EncoderKind.TRIPLE,
    )
    vectors = vectors_of(batch)
    queries = losses.running_queries(vectors, 1, paired=True)
    last = [1, 1, 5, 3]
    asked = [double(queries[w, t]) for w, t in enumerate(last)]
    replies = [double(vectors.after[w, t]) for w, t in enumerate(last)]
    logits = np.array([[20.0 * query @ reply for reply in replies] for query in asked])
    margins = [logits[w, w] - logits[w, other] for w, other in enumerate((1, 0, 3, 2))]
    lost = np.mean([log(1 + exp(1.0 - margin)) for margin in margins])
    among_all = np.mean([-log(softmax(row)[w]) for w, row in enumerate(logits)])
    wanted = lost + losses.ALL_REPLIES * among_all
    assert losses.minimal_pairs_loss(vectors, queries).item() == pytest.approx(wanted, rel=1e-5)
