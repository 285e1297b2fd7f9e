"""Examples of ranking: files of contexts with right and wrong candidates, and how to build them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np

from turnwise.models.data import Dialogue, Record, Utterance, read_records, write_jsonl
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import Mask, Places
from turnwise.models.evaluation.split import Context, Split, next_speaker, read_context

Negatives = Literal["random", "bm25", "same-dialogue"]
BEST = 64
"""Proposals of BM25 beyond the number needed, as the dialogue's own utterances are dropped."""

Propose = Callable[["Reply"], Iterable[str]]


@dataclass(frozen=True, slots=True)
class RankingExample:
    """A context and candidates for the reply.

    Attributes:
        context: The utterances before the reply, oldest first.
        speaker: The one who would say the candidates.
        candidates: Texts.
        labels: For each candidate 1 if it is right, else 0.
    """

    context: tuple[Utterance, ...]
    speaker: str
    candidates: tuple[str, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankingSet:
    """Examples over one pool of texts.

    Attributes:
        split: Their contexts, each with its first right candidate as the target, and the pool of
            all distinct candidates.
        candidates: For each context the places (C,) of its candidates in the pool.
        relevant: For each context whether its candidates (C,) are right: some are, but not all.
        where: For each context its file and line.
        dropped: File and line of each example without a right, or without a wrong, candidate.
    """

    split: Split
    candidates: tuple[Places, ...]
    relevant: tuple[Mask, ...]
    where: tuple[str, ...]
    dropped: tuple[str, ...]


def read_ranking(paths: Sequence[str | Path], limit: int | None = None) -> RankingSet:
    """Read R10 files as one set, or their first `limit` examples.

    A line is `{"context": [...], "candidates": [...], "labels": [...], "speaker"?}`. An utterance
    of the context is a text or `{"speaker", "text"}`; where speakers are not given, they alternate.
    `speaker` says the candidates, by default the one who last spoke before the last speaker. As in
    the Douban protocol, examples without a right, or without a wrong, candidate are left out.

    Raises:
        DataError: A file cannot be read or does not hold such examples, or none is left.
    """
    kept: list[tuple[RankingExample, str]] = []
    dropped: list[Record] = []
    for record in islice(chain.from_iterable(map(read_records, paths)), limit):
        example = _example(record)
        if 0 < sum(example.labels) < len(example.labels):
            kept.append((example, record.where))
        else:
            dropped.append(record)
    if not kept:
        if not dropped:
            raise DataError("no example in it", ", ".join(map(str, paths)))
        what = f"expected right and wrong candidates, which none of {len(dropped)} examples has"
        raise dropped[0].error("labels", what)
    return ranking_set(
        [example for example, _ in kept],
        [where for _, where in kept],
        [record.where for record in dropped],
    )


def ranking_set(
    examples: Sequence[RankingExample], where: Sequence[str], dropped: Sequence[str] = ()
) -> RankingSet:
    """Return examples over one pool; each has right and wrong candidates."""
    texts = dict.fromkeys(text for example in examples for text in example.candidates)
    place = {text: place for place, text in enumerate(texts)}
    candidates = tuple(np.array([place[text] for text in e.candidates]) for e in examples)
    relevant = tuple(np.array(example.labels, np.bool_) for example in examples)
    true = [int(those[right][0]) for those, right in zip(candidates, relevant, strict=True)]
    pool = tuple(texts)
    contexts = tuple(
        Context(example.context, Utterance(example.speaker, pool[target]))
        for example, target in zip(examples, true, strict=True)
    )
    split = Split(contexts, pool, np.array(true))
    return RankingSet(split, candidates, relevant, tuple(where), tuple(dropped))


def write_ranking(examples: Iterable[RankingExample], path: str | Path) -> int:
    """Write examples as `read_ranking` reads them, and return their number."""
    return write_jsonl(path, map(asdict, examples))


def _example(record: Record) -> RankingExample:
    context = read_context(record, "context")
    candidates, labels = record.texts("candidates"), tuple(record.items("labels"))
    if len(labels) != len(candidates):
        what = f"expected as many as candidates, {len(candidates)}, found {len(labels)}"
        raise record.error("labels", what)
    for place, label in enumerate(labels):
        if label not in (0, 1):
            raise record.error(f"labels[{place}]", f"expected 0 or 1, found {json.dumps(label)}")
    named = record.fields.get("speaker")
    speaker = next_speaker(context) if named is None else record.as_text("speaker", named)
    return RankingExample(context, speaker, candidates, tuple(map(int, labels)))


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply in a dialogue: the utterance after the first `length`."""

    dialogue: Dialogue
    length: int

    @property
    def text(self) -> str:
        """The text of the reply."""
        return self.dialogue.utterances[self.length].text


@dataclass(frozen=True, slots=True)
class Building:
    """How examples are built.

    Attributes:
        sources: Sources of wrong candidates, in equal parts; `random` fills the gaps of the others.
            `random` draws utterances of other dialogues. `bm25` takes utterances of other
            dialogues that share most words with the context's last utterance. `same-dialogue`
            draws utterances of the dialogue itself, before or after the reply: they mislead a
            system that prefers repetitions.
        candidates: Candidates of an example, the true one included.
        replies: Replies drawn from a dialogue; all if it has fewer.
        context: Utterances before a reply, at least.
        seed: The same files and settings give the same examples.
    """

    sources: tuple[Negatives, ...] = ("random",)
    candidates: int = 10
    replies: int = 1
    context: int = 2
    seed: int = 0


def build_ranking(dialogues: Sequence[Dialogue], how: Building) -> Iterator[RankingExample]:
    """Yield examples with one right candidate, one for each of `draw_replies`.

    The candidates of an example differ by more than case.

    Raises:
        TurnwiseError: The dialogues hold too few distinct utterances.
    """
    generator = np.random.default_rng(how.seed)
    proposals = _proposals(dialogues, how, generator)
    for reply in draw_replies(dialogues, how):
        wrong = _wrong(reply, how, proposals)
        order = generator.permutation(len(wrong) + 1)
        texts = [reply.text, *wrong]
        said = reply.dialogue.utterances
        yield RankingExample(
            context=said[: reply.length],
            speaker=said[reply.length].speaker,
            candidates=tuple(texts[n] for n in order),
            labels=tuple(int(n == 0) for n in order),
        )


def draw_replies(dialogues: Sequence[Dialogue], how: Building) -> list[Reply]:
    """Return the replies to build examples for; dialogues that are too short give none.

    Raises:
        TurnwiseError: All are too short.
    """
    generator = np.random.default_rng(how.seed)
    drawn = [
        Reply(dialogue, int(length))
        for dialogue in dialogues
        if (possible := np.arange(how.context, len(dialogue.utterances))).size
        for length in np.sort(generator.permutation(possible)[: how.replies])
    ]
    if not drawn:
        raise TurnwiseError(f"no dialogue is longer than {how.context} utterances")
    return drawn


def _proposals(
    dialogues: Sequence[Dialogue], how: Building, generator: np.random.Generator
) -> dict[Negatives, Propose]:
    texts = list(dict.fromkeys(said.text for d in dialogues for said in d.utterances))

    def random(reply: Reply) -> Iterator[str]:
        own = {said.text for said in reply.dialogue.utterances}
        drawn = (texts[n] for n in generator.permutation(len(texts)))
        return (text for text in drawn if text not in own)

    def same_dialogue(reply: Reply) -> Iterator[str]:
        said = reply.dialogue.utterances
        return (said[n].text for n in generator.permutation(len(said)))

    proposals: dict[Negatives, Propose] = {"random": random, "same-dialogue": same_dialogue}
    if "bm25" in how.sources:
        proposals["bm25"] = _best_matches(texts, how.candidates + BEST)
    return proposals


def _best_matches(texts: Sequence[str], count: int) -> Propose:
    index = BM25(texts)

    def propose(reply: Reply) -> list[str]:
        said = reply.dialogue.utterances
        own = {utterance.text for utterance in said}
        scores = index.scores(said[reply.length - 1].text)
        best = np.argsort(-scores, kind="stable")[:count]
        return [texts[n] for n in best if scores[n] > 0 and texts[n] not in own]

    return propose


def _wrong(reply: Reply, how: Building, proposals: dict[Negatives, Propose]) -> list[str]:
    """Return wrong candidates: its part from each source, and the rest from `random`."""
    needed = how.candidates - 1
    parts = [needed * (n + 1) // len(how.sources) for n in range(len(how.sources))]
    taken = {reply.text.casefold(): reply.text}
    for source, enough in zip((*how.sources, "random"), (*parts, needed), strict=True):
        for text in proposals[source](reply):
            if len(taken) > enough:
                break
            taken.setdefault(text.casefold(), text)
    if len(taken) <= needed:
        raise TurnwiseError(f"too few distinct utterances for {how.candidates} candidates")
    return list(taken.values())[1:]
