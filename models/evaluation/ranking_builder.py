"""Ranking problems out of dialogues: the true reply among wrong ones from elsewhere."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnwise.models.data import Dialogue
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.ranking_files import RankingProblem

Source = Literal["random", "bm25", "same-dialogue"]
BEST = 64
"""BM25 proposes this many more than are asked for, as the dialogue's own utterances fall out."""

Propose = Callable[["Place"], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Place:
    """A reply of a dialogue: the utterance after the first `length`."""

    dialogue: Dialogue
    length: int

    @property
    def reply(self) -> str:
        """What was said."""
        return self.dialogue.utterances[self.length].text


@dataclass(frozen=True, slots=True)
class Building:
    """How problems are built.

    Attributes:
        sources: Where wrong candidates come from, in equal parts; what one cannot give, `random`
            does. `random` draws utterances of other dialogues, `bm25` takes those of other
            dialogues that share most with the context's last utterance, `same-dialogue` draws
            utterances of the dialogue itself, said before or after, for which a system that
            prefers repetitions falls.
        candidates: Candidates of a problem, the true one included.
        replies: Replies drawn from a dialogue; all where it has fewer.
        history: Utterances before a reply, at least.
        seed: The same files and settings give the same problems.
    """

    sources: tuple[Source, ...] = ("random",)
    candidates: int = 10
    replies: int = 1
    history: int = 2
    seed: int = 0


def build_ranking(dialogues: Sequence[Dialogue], how: Building) -> Iterator[RankingProblem]:
    """Yield problems with one right candidate, as many as `places` gives.

    No wrong candidate equals the true one or another, but for case.

    Raises:
        TurnwiseError: The dialogues hold too few distinct utterances.
    """
    generator = np.random.default_rng(how.seed)
    proposals = _proposals(dialogues, how, generator)
    for place in places(dialogues, how):
        wrong = _wrong(place, how, proposals)
        order = generator.permutation(len(wrong) + 1)
        texts = [place.reply, *wrong]
        said = place.dialogue.utterances
        yield RankingProblem(
            context=said[: place.length],
            speaker=said[place.length].speaker,
            candidates=tuple(texts[n] for n in order),
            labels=tuple(int(n == 0) for n in order),
        )


def places(dialogues: Sequence[Dialogue], how: Building) -> list[Place]:
    """Draw the replies that problems are built for; dialogues that are too short give none.

    Raises:
        TurnwiseError: All are too short.
    """
    generator = np.random.default_rng(how.seed)
    drawn = [
        Place(dialogue, int(length))
        for dialogue in dialogues
        if (possible := np.arange(how.history, len(dialogue.utterances))).size
        for length in np.sort(generator.permutation(possible)[: how.replies])
    ]
    if not drawn:
        raise TurnwiseError(f"no dialogue is longer than {how.history} utterances")
    return drawn


def _proposals(
    dialogues: Sequence[Dialogue], how: Building, generator: np.random.Generator
) -> dict[Source, Propose]:
    texts = list(dict.fromkeys(said.text for d in dialogues for said in d.utterances))

    def random(place: Place) -> Iterator[str]:
        own = {said.text for said in place.dialogue.utterances}
        drawn = (texts[n] for n in generator.permutation(len(texts)))
        return (text for text in drawn if text not in own)

    def same_dialogue(place: Place) -> Iterator[str]:
        said = place.dialogue.utterances
        return (said[n].text for n in generator.permutation(len(said)))

    proposals: dict[Source, Propose] = {"random": random, "same-dialogue": same_dialogue}
    if "bm25" in how.sources:
        proposals["bm25"] = _best_matches(texts, how.candidates + BEST)
    return proposals


def _best_matches(texts: Sequence[str], count: int) -> Propose:
    index = BM25(texts)

    def propose(place: Place) -> list[str]:
        said = place.dialogue.utterances
        own = {utterance.text for utterance in said}
        scores = index.scores(said[place.length - 1].text)
        best = np.argsort(-scores, kind="stable")[:count]
        return [texts[n] for n in best if scores[n] > 0 and texts[n] not in own]

    return propose


def _wrong(place: Place, how: Building, proposals: dict[Source, Propose]) -> list[str]:
    """Take from each source its part, and from `random` what is missing."""
    needed = how.candidates - 1
    parts = [needed * (n + 1) // len(how.sources) for n in range(len(how.sources))]
    taken = {place.reply.casefold(): place.reply}
    for source, enough in zip((*how.sources, "random"), (*parts, needed), strict=True):
        for text in proposals[source](place):
            if len(taken) > enough:
                break
            taken.setdefault(text.casefold(), text)
    if len(taken) <= needed:
        raise TurnwiseError(f"too few distinct utterances for {how.candidates} candidates")
    return list(taken.values())[1:]
