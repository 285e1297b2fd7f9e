"""Ranking: order given candidates; one or several of them are right (R10, Douban).

`build_ranking` makes such examples of dialogues, with wrong candidates from several sources.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Literal

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.data import Dialogue, Record, Utterance, read_id, read_label, read_records
from turnwise.models.dialogue_files import read_labelled_responses
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import (
    Indices,
    Mask,
    Metrics,
    Scores,
    group_by_length,
    ranking_metrics,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import (
    Context,
    Propose,
    Split,
    encode_split,
    next_speaker,
    read_context,
    split_of,
)
from turnwise.models.evaluation.systems import (
    System,
    encoder_systems,
    lexical_systems,
    pairwise_system,
    reading_system,
    recommended_system,
    reranked_system,
    retriever_system,
    scores_of,
    turn_ms,
)
from turnwise.models.evaluation.truncation import first_locations, warn_of_cut, warn_of_truncation
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.rerankers.pairs import UTTERANCES
from turnwise.models.text_files import plain_ending
from turnwise.models.texts import write_count

Model = UtteranceEncoder | PairwiseModel | IoI | CrossEncoder
Negatives = Literal["random", "bm25", "same-dialogue", "short-list"]

TIMED_CANDIDATES = (10, 1000)
SHORT_LIST = 10
"""Length of the short lists from which wrong candidates are drawn."""
COPY = 0.9
"""Cosine of two replies from which one counts as a copy of the other."""
BEST = 64
"""Extra proposals of BM25, because the dialogue's own utterances are dropped from them."""


@dataclass(frozen=True, slots=True)
class RankingExample:
    """A context and candidates for the reply.

    Attributes:
        context: The utterances before the reply, oldest first.
        speaker: The speaker of the candidates.
        candidates: Texts.
        labels: For each candidate 1 if it is right, else 0.
        dialogue_id: The id of the dialogue, if it is known.
    """

    context: tuple[Utterance, ...]
    speaker: str
    candidates: tuple[str, ...]
    labels: tuple[int, ...]
    dialogue_id: str | None = None


@dataclass(frozen=True, slots=True)
class RankingSet:
    """Examples over one pool of texts.

    Attributes:
        split: Their contexts, each with its first right candidate as the target, and the pool of
            all distinct candidates.
        candidates: For each context the indices (C,) of its candidates in the pool.
        relevant: For each context whether its candidates (C,) are right: some are, but not all.
        where: For each context its file and line.
        dropped: File and line of each example without a right, or without a wrong, candidate.
    """

    split: Split
    candidates: tuple[Indices, ...]
    relevant: tuple[Mask, ...]
    where: tuple[str, ...]
    dropped: tuple[str, ...]


def read_ranking(paths: Sequence[str | Path], limit: int | None = None) -> RankingSet:
    """Read R10 files as one set, or their first `limit` examples.

    A line is `{"context": [...], "candidates": [...], "labels": [...], "speaker"?,
    "dialogue_id"?}`. An utterance of the context is a text or `{"speaker", "text"}`; where speakers
    are not given, they alternate. `speaker` says the candidates, by default the one who last spoke
    before the last speaker. A `.tsv` file has the format of IoI's corpora, a candidate a line
    (`read_labelled_responses`). As in the Douban protocol, examples without a right, or without a
    wrong, candidate are left out.

    Raises:
        DataError: A file cannot be read or does not hold such examples, or none is left.
    """
    kept: list[tuple[RankingExample, str]] = []
    dropped: list[Record] = []
    for record in islice(chain.from_iterable(map(_read_examples, paths)), limit):
        example = _parse_example(record)
        if len(paths) > 1 and example.dialogue_id:  # files may have equal ids
            example = replace(example, dialogue_id=f"{record.file}: {example.dialogue_id}")
        if 0 < sum(example.labels) < len(example.labels):
            kept.append((example, record.where))
        else:
            dropped.append(record)
    if not kept:
        if not dropped:
            raise DataError("no example in it", ", ".join(map(str, paths)))
        what = (
            "expected right and wrong candidates, which none of "
            f"{write_count(len(dropped), 'example')} has"
        )
        raise dropped[0].error("labels", what)
    return ranking_set(kept, [record.where for record in dropped])


def ranking_set(
    located: Sequence[tuple[RankingExample, str]], dropped: Sequence[str] = ()
) -> RankingSet:
    """Return examples over one pool.

    Args:
        located: Examples with right and wrong candidates, each with its file and line.
        dropped: File and line of each example that was left out.
    """
    examples = [example for example, _ in located]
    texts = dict.fromkeys(text for example in examples for text in example.candidates)
    index_of = {text: index for index, text in enumerate(texts)}
    candidates = tuple(np.array([index_of[text] for text in e.candidates]) for e in examples)
    relevant = tuple(np.array(example.labels, np.bool_) for example in examples)
    true = [int(those[right][0]) for those, right in zip(candidates, relevant, strict=True)]
    pool = tuple(texts)
    contexts = tuple(
        Context(example.context, Utterance(example.speaker, pool[target]), example.dialogue_id)
        for example, target in zip(examples, true, strict=True)
    )
    split = Split(contexts, pool, np.array(true))
    where = tuple(line for _, line in located)
    return RankingSet(split, candidates, relevant, where, tuple(dropped))


def evaluate_ranking(
    models: Mapping[str, Model],
    data: RankingSet,
    progress: Callable[[str, int, int], object] = lambda *_: None,
    also: Iterable[System] = (),
) -> Iterator[Row]:
    """Evaluate all systems of the models, after random and BM25.

    Args:
        models: The models by their names in the table. Every IoI network also re-ranks the short
            list of every encoder with pairs.
        data: The examples.
        progress: Called with (system, contexts done, contexts in total) after each context.
        also: Systems to evaluate before those of the models.

    Yields:
        A row for each system: the metrics of `ranking_metrics`, P@1 by the length of the context,
        and the median milliseconds of one more turn with 10 candidates and with 1,000. A turn
        encodes the last utterance, as in next-utterance selection, and knows the vectors of the
        candidates; re-rankers read each candidate with the context.
    """
    warn_of_long_inputs(models, data)
    for system in chain(also, systems_of(models, data.split)):
        metrics, first = _measure(system, data, progress)
        cost = {
            f"ms_{count}_candidates": turn_ms(system, data.split, count)
            for count in TIMED_CANDIDATES
        }
        outcomes = Outcomes(first, np.full(len(first), ""), data.split.dialogues)
        yield Row(system.name, metrics | cost, cost["ms_1000_candidates"], outcomes)


def systems_of(models: Mapping[str, Model], split: Split) -> Iterator[System]:
    """Yield all systems by their names in the table; a model encodes when its turn comes."""
    yield from lexical_systems(split)
    networks = [
        reading_system(name, partial(_score_words, model), split)
        for name, model in models.items()
        if isinstance(model, IoI)
    ]
    for label, model in models.items():
        if isinstance(model, UtteranceEncoder):
            encoded = encode_split(model, split)
            systems = encoder_systems(encoded)
            if networks and model.kind.paired:
                first = retriever_system(encoded, model.aggregation)
                systems += [reranked_system(first, network) for network in networks]
        elif isinstance(model, PairwiseModel):
            systems = [pairwise_system(model, split)]
        elif isinstance(model, IoI):
            systems = [reading_system("IoI", partial(_score_words, model), split)]
        else:
            systems = [reading_system("cross-encoder", partial(_score_pairs, model), split)]
        for system in systems:
            yield replace(system, name=f"{label} · {system.name}")


def _score_words(model: IoI, context: Context, candidates: Sequence[str]) -> Scores:
    return model.scores(context.texts, candidates)


def _score_pairs(model: CrossEncoder, context: Context, candidates: Sequence[str]) -> Scores:
    return model.scores(model.read_context(context.utterances, context.target.speaker), candidates)


def warn_of_long_inputs(models: Mapping[str, Model], data: RankingSet) -> None:
    """Warn of texts that are longer than a model reads."""
    whole = (
        (" ".join(each.texts), f'{where}, field "context"')
        for each, _, where in _locate_contexts(data)
    )
    readers = {n: m for n, m in models.items() if not isinstance(m, CrossEncoder)}
    warn_of_truncation(readers, _locate_texts(data), whole)
    for label, model in models.items():
        if isinstance(model, CrossEncoder):
            pairs = first_locations(_locate_pairs(model, data))
            warn_of_cut(label, model.too_long(list(pairs)), list(pairs.values()))


@dataclass(frozen=True, slots=True)
class Building:
    """How examples are built.

    Attributes:
        sources: Sources of wrong candidates, in equal parts; `random` fills the gaps of the others.
            `random` draws utterances of other dialogues. `bm25` takes utterances of other
            dialogues that share most words with the context's last utterance. `same-dialogue`
            draws utterances of the dialogue itself, before or after the reply: they mislead a
            system that prefers repetitions. `short-list` takes replies that an encoder ranks
            first.
        candidates: Candidates of an example, the true one included.
        replies: Replies drawn from a dialogue; all if it has fewer.
        context: Utterances before a reply, at least.
        seed: Seed of all draws: the same files and settings give the same examples.
    """

    sources: tuple[Negatives, ...] = ("random",)
    candidates: int = 10
    replies: int = 1
    context: int = 2
    seed: int = 0


def build_ranking(
    dialogues: Sequence[Dialogue], how: Building, encoder: UtteranceEncoder | None = None
) -> Iterator[RankingExample]:
    """Yield examples with one right candidate, one for each of `draw_replies`.

    The candidates of an example differ by more than case.

    Args:
        dialogues: The dialogues.
        how: How examples are built.
        encoder: Finds the short lists, if they are a source.

    Raises:
        TurnwiseError: The dialogues hold too few distinct utterances.
    """
    generator = np.random.default_rng(how.seed)
    proposals = _make_proposals(dialogues, how, generator)
    if encoder and "short-list" in how.sources:
        proposals["short-list"] = _short_lists(encoder, dialogues, how, generator)
    for dialogue, length in draw_replies(dialogues, how):
        reply = dialogue.utterances[length]
        wrong = _draw_wrong(dialogue, length, how, proposals)
        order = generator.permutation(len(wrong) + 1)
        texts = [reply.text, *wrong]
        yield RankingExample(
            context=dialogue.utterances[:length],
            speaker=reply.speaker,
            candidates=tuple(texts[n] for n in order),
            labels=tuple(int(n == 0) for n in order),
            dialogue_id=dialogue.id,
        )


def draw_replies(dialogues: Sequence[Dialogue], how: Building) -> list[tuple[Dialogue, int]]:
    """Return the dialogue and the length of the context of each reply to build an example for.

    Raises:
        TurnwiseError: All dialogues are too short.
    """
    generator = np.random.default_rng(how.seed)
    drawn: list[tuple[Dialogue, int]] = []
    for dialogue in dialogues:
        possible = np.arange(how.context, len(dialogue.utterances))
        if possible.size:
            lengths = np.sort(generator.permutation(possible)[: how.replies])
            drawn += [(dialogue, length) for length in lengths.tolist()]
    if not drawn:
        raise TurnwiseError(f"no dialogue is longer than {write_count(how.context, 'utterance')}")
    return drawn


def _read_examples(path: str | Path) -> Iterator[Record]:
    """Yield the records of a file; consecutive lines of `.tsv` with one context are a record."""
    if plain_ending(str(path)) != ".tsv":
        yield from read_records(path)
        return
    for context, same in groupby(read_labelled_responses(path), key=attrgetter("context")):
        responses = list(same)
        fields = {
            "context": list(context),
            "candidates": [each.response for each in responses],
            "labels": [int(each.is_right) for each in responses],
        }
        yield Record(fields, str(path), responses[0].line)


def _parse_example(record: Record) -> RankingExample:
    context = read_context(record, "context")
    candidates = record.texts("candidates")
    labels = tuple(record.items("labels"))
    if len(labels) != len(candidates):
        what = f"expected as many as candidates, {len(candidates)}, found {len(labels)}"
        raise record.error("labels", what)
    for index, label in enumerate(labels):
        if label not in (0, 1):
            raise record.error(f"labels[{index}]", f"expected 0 or 1, found {json.dumps(label)}")
    named = record.fields.get("speaker")
    speaker = next_speaker(context) if named is None else read_label(record, "speaker")
    dialogue_id = read_id(record, "dialogue_id")
    return RankingExample(context, speaker, candidates, tuple(map(int, labels)), dialogue_id)


def _locate_texts(data: RankingSet) -> Iterator[tuple[str, str]]:
    for context, candidates, where in _locate_contexts(data):
        yield from ((text, f'{where}, field "context"') for text in context.texts)
        yield from ((text, f'{where}, field "candidates"') for text in candidates)


def _locate_pairs(model: CrossEncoder, data: RankingSet) -> Iterator[tuple[tuple[str, str], str]]:
    for context, candidates, where in _locate_contexts(data):
        said = model.read_context(context.utterances, context.target.speaker)
        yield from ((model.pair(said, text), f'{where}, field "candidates"') for text in candidates)


def _locate_contexts(data: RankingSet) -> Iterator[tuple[Context, list[str], str]]:
    """Yield each context, its candidates' texts, and their file and line."""
    pool = data.split.pool
    for context, indices, where in zip(
        data.split.contexts, data.candidates, data.where, strict=True
    ):
        yield context, [pool[index] for index in indices], where


def _measure(
    system: System, data: RankingSet, progress: Callable[[str, int, int], object]
) -> tuple[Metrics, Float64]:
    """Return the metrics, and P@1 (N,) of each context."""
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    sizes = {len(indices) for indices in data.candidates}
    n = str(sizes.pop()) if len(sizes) == 1 else "n"
    total = len(data.candidates)
    for index, relevant in enumerate(data.relevant):
        scores = scores_of(system, index, data.candidates[index])
        for metric, value in ranking_metrics(scores, relevant, n).items():
            by_name[metric].append(value)
        progress(system.name, index + 1, total)
    metrics = {metric: float(np.mean(values)) for metric, values in by_name.items()}
    first = np.array(by_name["p@1"])
    for span, those in group_by_length(data.split.lengths).items():
        metrics[f"p@1/{span}"] = float(first[those].mean())
    return metrics, first


def _make_proposals(
    dialogues: Sequence[Dialogue], how: Building, generator: np.random.Generator
) -> dict[Negatives, Propose]:
    texts = list(dict.fromkeys(said.text for d in dialogues for said in d.utterances))

    def random(dialogue: Dialogue, _length: int) -> Iterator[str]:
        own = set(dialogue.texts)
        drawn = (texts[n] for n in generator.permutation(len(texts)))
        return (text for text in drawn if text not in own)

    def same_dialogue(dialogue: Dialogue, _length: int) -> Iterator[str]:
        said = dialogue.utterances
        return (said[n].text for n in generator.permutation(len(said)))

    proposals: dict[Negatives, Propose] = {"random": random, "same-dialogue": same_dialogue}
    if "bm25" in how.sources:
        proposals["bm25"] = _best_matches(texts, how.candidates + BEST)
    return proposals


def _best_matches(texts: Sequence[str], count: int) -> Propose:
    index = BM25(texts)

    def propose(dialogue: Dialogue, length: int) -> list[str]:
        own = set(dialogue.texts)
        scores = index.scores(dialogue.utterances[length - 1].text)
        best = np.argsort(-scores, kind="stable")[:count]
        return [texts[n] for n in best if scores[n] > 0 and texts[n] not in own]

    return propose


def _short_lists(
    encoder: UtteranceEncoder,
    dialogues: Sequence[Dialogue],
    how: Building,
    generator: np.random.Generator,
) -> Propose:
    """Propose what an encoder ranks first, in random order, without near copies of the reply.

    The encoder reads the newest utterances alone, as a cross-encoder does.
    """
    drawn = draw_replies(dialogues, how)
    contexts: list[Context] = []
    for drawn_from, length in drawn:
        said = drawn_from.utterances
        contexts.append(Context(said[max(0, length - UTTERANCES) : length], said[length]))
    encoded = encode_split(encoder, split_of(contexts))
    system = recommended_system(encoded, encoder.aggregation)
    pool = encoded.split.pool
    index_of = {turn: index for index, turn in enumerate(drawn)}

    def propose(dialogue: Dialogue, length: int) -> list[str]:
        index = index_of[dialogue, length]
        own = set(dialogue.texts)
        scores = system.scores(np.array([index]), np.arange(len(pool)))[0]
        alike = encoded.vectors @ encoded.vectors[encoded.split.true[index]]
        best = [n for n in np.argsort(-scores) if alike[n] < COPY and pool[n] not in own]
        return [pool[n] for n in generator.permutation(best[:SHORT_LIST])]

    return propose


def _draw_wrong(
    dialogue: Dialogue, length: int, how: Building, proposals: Mapping[Negatives, Propose]
) -> list[str]:
    """Return wrong candidates: equal parts from all sources; `random` fills the gaps."""
    needed = how.candidates - 1
    right = dialogue.utterances[length].text.casefold()
    wrong: dict[str, str] = {}

    def add(source: Negatives, total: int) -> None:
        for text in proposals[source](dialogue, length):
            if len(wrong) >= total:
                break
            if text.casefold() != right:
                wrong.setdefault(text.casefold(), text)

    for number, source in enumerate(how.sources, start=1):
        add(source, needed * number // len(how.sources))
    add("random", needed)
    if len(wrong) < needed:
        raise TurnwiseError(f"too few distinct utterances for {how.candidates} candidates")
    return list(wrong.values())
