import numpy as np

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.training.views import crop, views_of

SPEAKERS = "ACBABABABABAB"
"""C falls silent after the first turns."""


def test_each_who_answers_somebody_has_a_view() -> None:
    said = tuple(Utterance(speaker, str(turn)) for turn, speaker in enumerate(SPEAKERS))
    views = views_of(Dialogue("d", said))
    assert [view.responder for view in views] == ["C", "B", "A"]


def test_windows_end_with_a_target_whoever_speaks_and_however_seldom() -> None:
    said = tuple(Utterance(speaker, str(turn)) for turn, speaker in enumerate(SPEAKERS))
    rng = np.random.default_rng(0)
    for view in views_of(Dialogue("d", said)):
        for length in range(2, 2 + len(said)):
            window = crop(view, length, rng).utterances
            assert 2 <= len(window) <= length
            assert window[-1].speaker == view.responder
            start = int(window[0].text)
            assert window == said[start : start + len(window)]
