from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from tests.unit.models.training.conftest import both_sides, dialogue
from turnwise.models.data import Dialogue, Preferred, Utterance
from turnwise.models.roles import EncoderKind, Relation, Role, prefixed
from turnwise.models.training.config import WindowCorpus
from turnwise.models.training.corpora import draw_batches, read_windows
from turnwise.models.training.windows import (
    TripleTargets,
    Window,
    WindowBatch,
    collate,
    crop,
    pair_examples,
    pair_score,
    spaced,
    triple_examples,
    triple_score,
    windows_of,
)

SPEAKERS = "ACBABABABABAB"
"""C falls silent after the first turns."""
SAID = tuple(Utterance(speaker, str(turn)) for turn, speaker in enumerate(SPEAKERS))
WIDTH = 5


@pytest.fixture
def batch() -> WindowBatch:
    return collate(both_sides(), EncoderKind.TRIPLE)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_each_speaker_who_answers_somebody_has_a_window() -> None:
    windows = windows_of(Dialogue("d", SAID))
    assert [window.responder for window in windows] == ["C", "B", "A"]


def test_windows_end_with_a_target_however_seldom_the_responder_speaks() -> None:
    generator = rng()
    for window in windows_of(Dialogue("d", SAID)):
        for length in range(2, 2 + len(SAID)):
            cropped = crop(window, length, generator).utterances
            assert 2 <= len(cropped) <= length
            assert cropped[-1].speaker == window.responder
            start = int(cropped[0].text)
            assert cropped == SAID[start : start + len(cropped)]


def test_a_window_ends_one_turn_before_its_length_is_reached_or_later() -> None:
    said = tuple(Utterance("AB"[turn % 2], str(turn)) for turn in range(8))
    first, *_ = windows_of(Dialogue("d", said))
    generator = rng()
    ends = {int(crop(first, 5, generator).utterances[-1].text) for _ in range(100)}
    assert (first.responder, ends) == ("B", {3, 5, 7})


def test_noise_is_in_contexts_alone() -> None:
    said = tuple(Utterance("AB"[turn % 2], f"what is number {turn} [E]?") for turn in range(6))
    batch = collate(list(windows_of(Dialogue("d", said))), EncoderKind.HEADS)
    noisy = batch.draw_noisy_items(1.0, rng())
    changed = {index for index, item in enumerate(noisy) if item != batch.items[index]}
    assert changed <= set(batch.in_context.tolist())
    assert len(changed) > 3
    texts = [prefixed(EncoderKind.HEADS, item) for item in noisy]
    assert all(texts[index].startswith("[B2] [O] [BEFORE] ") for index in batch.in_context)
    assert not any(text.endswith("[E]?") for text in texts)
    assert batch.draw_noisy_items(0.0, rng()) == batch.items


def test_a_batch_holds_each_text_once_a_role(batch: WindowBatch) -> None:
    assert len(set(batch.items)) == len(batch.items)
    lake = [item for item in batch.items if "lake" in item.text]
    assert len(lake) == 6 * 2 + 3  # both context roles, and the targets
    assert set(batch.dialogue.tolist()) == {0, 1, 2}
    for v, t in np.argwhere(batch.target):
        assert batch.items[batch.after[v, t]].role is Role.AFTER
        first = batch.items[batch.first[v, t]]
        assert (first.role, first.relation) == (Role.FIRST, Relation.SAME)


def test_what_was_passed_over_is_spaced_as_what_was_said() -> None:
    said = (Utterance("A", "Why?"), Preferred("B", "No, it isn't.", ("Yes, it's.", "Why not?")))
    first, second = spaced(Window(Dialogue("d", said), said, "B")).utterances
    assert first == Utterance("A", "Why ?")
    assert second == Preferred("B", "No , it isn ' t .", ("Yes , it ' s .", "Why not ?"))


def test_a_story_of_one_speaker_is_one_window_of_targets() -> None:
    story = Dialogue(
        "s", tuple(Utterance("A", text) for text in ("It rained.", "We stayed.", "So?"))
    )
    (window,) = windows_of(story)
    kind = EncoderKind.TRIPLE_WITHOUT_SPEAKERS
    laid_out = collate([window], kind)
    assert laid_out.target.tolist() == [[True, True, True]]
    assert [prefixed(kind, item) for item in laid_out.items[:3]] == [
        "[B1] [BEFORE] It rained.",
        "[B2] [BEFORE] It rained.",
        "[AFTER] It rained.",
    ]


def test_pair_scores_are_those_of_ccl() -> None:
    assert [pair_score(i, 5) for i in (1, 2, 3, 4)] == pytest.approx([0.8, 0.6, 0.4, 0.2])


@pytest.mark.parametrize(
    ("form", "low", "published"),
    [
        ("released", min, [0.2, 0.4, 0.6, 0.6, 0.8, 1.0]),
        ("printed", lambda _: 1 / 5, [0.47, 0.6, 0.73, 0.73, 0.87, 1.0]),
    ],
)
def test_triple_scores_are_those_of_the_equation(
    form: TripleTargets, low: Callable[[list[float]], float], published: list[float]
) -> None:
    w = k = 5
    pairs = list(combinations(range(1, k), 2))
    sums = [2 - (2 * k - (i + j)) / w for i, j in pairs]
    least = low(sums)
    naive = [(x - least) / (max(sums) - least) * (1 - 1 / w) + 1 / w for x in sums]
    scores = [triple_score(k - i, k - j, w, form) for i, j in pairs]
    assert triple_score(2, 1, 3, form) == 1  # the only pair of a window of 3
    assert scores == pytest.approx(naive)
    assert sorted(scores) == pytest.approx(published, abs=0.005)


def test_positives_are_earlier_turns_of_the_same_window(batch: WindowBatch) -> None:
    examples = triple_examples(batch, WIDTH, rng(), directional=False, curved=True)
    turns = batch.spoken.shape[1]
    wanted = {
        (v * turns + i, v * turns + j, v * turns + k)
        for v, k in np.argwhere(batch.target)
        for i, j in combinations(range(max(0, k - WIDTH + 1), k), 2)
    }
    true = examples.score > 0
    got = zip(examples.first[true], examples.second[true], examples.after[true], strict=True)
    assert {tuple(int(x) for x in example) for example in got} == wanted
    assert 5 in examples.after.tolist()  # the last utterance of the first window


def test_pairs_of_one_dialogue_are_those_of_ccl() -> None:
    window = dialogue(9, "lake", "A")
    alone = collate([window], EncoderKind.CURVED)
    examples = pair_examples(alone, WIDTH, rng(), directional=True, curved=True)
    targets = [n for n, said in enumerate(window.utterances) if said.speaker == "A"]
    naive = {}
    for i, j in product(range(9), targets):
        if 0 < j - i < WIDTH:
            naive[i, j] = (WIDTH - (j - i)) / WIDTH
        elif 0 < i - j < WIDTH:
            naive[i, j] = 0.0  # the reverse direction
    places = zip(examples.second.tolist(), examples.after.tolist(), strict=True)
    found = dict(zip(places, examples.score.tolist(), strict=True))
    assert found == pytest.approx(naive)


@pytest.mark.parametrize("make", [pair_examples, triple_examples])
@pytest.mark.parametrize("directional", [True, False])
def test_negatives_have_another_dialogue_or_the_wrong_order(
    make: Callable[..., object], batch: WindowBatch, directional: bool
) -> None:
    examples = make(batch, WIDTH, rng(), directional=directional, curved=True)
    false = examples.score == 0
    turns = batch.spoken.shape[1]
    first, second, after = (
        x[false].numpy() for x in (examples.first, examples.second, examples.after)
    )
    assert batch.target.flat[after].all()
    assert batch.spoken.flat[first].all()
    assert batch.spoken.flat[second].all()
    of_after = after // turns
    dialogues = []
    for place in (first, second):
        same_window = place // turns == of_after
        other_dialogue = batch.dialogue[place // turns] != batch.dialogue[of_after]
        assert (same_window | other_dialogue).all()
        dialogues.append(other_dialogue)
    backwards = ((first > second) | (second > after)) & ~dialogues[0] & ~dialogues[1]
    assert (dialogues[0] | dialogues[1] | backwards).all()
    assert backwards.any() == directional


@pytest.mark.parametrize("make", [pair_examples, triple_examples])
def test_one_dialogue_alone_gives_no_random_negatives(make: Callable[..., object]) -> None:
    both = [dialogue(5, "lake", "A"), dialogue(5, "lake", "B")]
    for windows in (both, both[:1]):
        alone = collate(windows, EncoderKind.TRIPLE)
        examples = make(alone, WIDTH, rng(), directional=False, curved=True)
        assert len(examples.score)
        assert (examples.score > 0).all()


def test_hard_positives_all_score_one(batch: WindowBatch) -> None:
    examples = triple_examples(batch, WIDTH, rng(), directional=False, curved=False)
    assert set(examples.score.tolist()) == {0.0, 1.0}


def test_a_sampled_corpus_is_seen_whole_over_the_epochs(small_corpora: Path) -> None:
    windows = read_windows(WindowCorpus(path=str(small_corpora / "dialogues.jsonl")), Path)
    assert len(windows) == 24
    seen = []
    for epoch in range(6):
        batches = draw_batches([(windows, 16)], 8, 1, epoch, np.random.default_rng(epoch))
        assert [len(batch) for batch in batches] == [8, 8]
        seen += [window for batch in batches for window in batch]
    assert all(seen.count(window) == 4 for window in windows)
