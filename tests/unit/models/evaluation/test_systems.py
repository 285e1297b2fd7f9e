import json
import shutil
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from tests.unit.models.conftest import Encoders, Folder
from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation import systems
from turnwise.models.evaluation.metrics import Indices, Scores
from turnwise.models.evaluation.split import Context, EncodedSplit, Split, encode_split, make_split
from turnwise.models.evaluation.systems import (
    System,
    encode_from_left,
    linear_systems,
    other_systems,
    pairwise_system,
    part_systems,
    reading_system,
    recommended_system,
    reranked_system,
    retriever_system,
    scores_of,
)
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.roles import EncoderKind, Role, prefixed, relation_to
from turnwise.models.scores import Aggregation, max_sim

NAMES = {
    EncoderKind.TRIPLE: [
        "bi-encoder",
        "mean",
        *(f"last {n} row{'s' * (n > 1)}" for n in range(1, 5)),
    ],
    EncoderKind.TRIPLE_WITHOUT_SPEAKERS: ["bi-encoder", "mean", "last 2 rows"],
    EncoderKind.CURVED: ["CCL", "CCL, last utterance"],
    EncoderKind.CURVED_WITHOUT_SPEAKERS: ["CCL", "CCL, last utterance"],
    EncoderKind.SINGLE: ["mean of the context", "last utterance", "whole history"],
}


def encoded_systems(encoded: EncodedSplit) -> dict[str, System]:
    return {system.name: system for system in linear_systems(encoded) + other_systems(encoded)}


def all_scores(system: System, encoded: EncodedSplit) -> np.ndarray:
    contexts = len(encoded.split.contexts)
    pool = len(encoded.split.pool)
    return system.scores(np.arange(contexts), np.arange(pool))


def query_of(name: str, encoder: UtteranceEncoder, texts: list[str], relations: list) -> np.ndarray:
    """The query of a system, from the texts of a context."""
    second = encoder.encode(texts, Role.SECOND, relations)
    if name in ("bi-encoder", "CCL", "mean of the context"):
        return second.sum(axis=0)
    if name.endswith("last utterance"):
        return second[-1]
    if name == "whole history":
        return encoder.encode([" ".join(texts)], Role.AFTER)[0]
    first = encoder.encode(texts, Role.FIRST, relations)
    aggregation = (
        Aggregation() if name == "mean" else Aggregation("last_rows", int(name.split()[1]))
    )
    return aggregation.query(first, second)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names]
)
def test_scores_are_those_of_the_definition(
    kind: EncoderKind, name: str, tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    encoder = tiny_encoder(kind)
    split = make_split(dialogues[1:4], [2, 5], full_pool=False)
    encoded = encode_split(encoder, split)
    vectors = encoder.encode(split.pool, Role.AFTER)
    expected = []
    for context in split.contexts:
        texts = [said.text for said in context.utterances]
        relations = [
            relation_to(said.speaker, context.target.speaker) for said in context.utterances
        ]
        expected.append(vectors @ query_of(name, encoder, texts, relations))
    scores = all_scores(encoded_systems(encoded)[name], encoded)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_parts_of_a_score_are_those_of_the_definition(
    tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    encoded = encode_split(encoder, make_split(dialogues[1:4], [1, 3], full_pool=False))
    found = {system.name: all_scores(system, encoded) for system in part_systems(encoded)}
    for n, (first, second) in enumerate(zip(encoded.first, encoded.second, strict=True)):
        b1, b2 = first.astype(np.float64), second.astype(np.float64)
        mixed = {
            (i, j): (b1[i] + b2[j]) / np.linalg.norm(b1[i] + b2[j])
            for i, j in combinations(range(len(b1)), 2)
        }
        if not mixed:  # a single utterance is scored by its own vector
            np.testing.assert_allclose(
                found["direct neighbours"][n], encoded.vectors @ b2[0], atol=1e-4
            )
            continue
        naive = {
            "direct neighbours": sum(m for (i, j), m in mixed.items() if j == i + 1),
            "[B1] alone": b1.sum(axis=0),
            "[B1] + [B2]": (b1 + b2).sum(axis=0),
            "mean + bi-encoder": sum(mixed.values()) + b2.sum(axis=0),
        }
        for name, query in naive.items():
            np.testing.assert_allclose(found[name][n], encoded.vectors @ query, atol=1e-4)
    assert part_systems(encode_split(tiny_encoder(EncoderKind.CURVED), encoded.split)) == []


def test_a_card_has_the_vectors_of_a_published_checkpoint_mixed_as_they_are(
    tiny_encoder_folder: Folder, tmp_path: Path, dialogues: list[Dialogue]
) -> None:
    """As the released evaluation of C3L does; the folder has its modules, without a Normalize."""
    folder = Path(shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / "published"))
    modules = [each["type"] for each in json.loads((folder / "modules.json").read_text())]
    assert [name.rpartition(".")[2] for name in modules] == ["Transformer", "Pooling"]
    card = {"aggregation": {"name": "mean"}, "mixing": "raw"}
    (folder / "turnwise.json").write_text(json.dumps(card))
    encoded = encode_split(UtteranceEncoder(folder, device="cpu"), make_split(dialogues, [3]))
    context = encoded.split.contexts[0]
    plain = SentenceTransformer(str(folder), device="cpu")

    def raw(role: Role) -> np.ndarray:
        texts = [prefixed(EncoderKind.TRIPLE, item) for item in context.inputs(role)]
        return plain.encode(texts, show_progress_bar=False).astype(np.float64)

    first, second = raw(Role.FIRST), raw(Role.SECOND)
    mixtures = [(first[i] + second[j]) / 2 for i, j in combinations(range(3), 2)]
    query = sum(mixture / np.linalg.norm(mixture) for mixture in mixtures)
    scores = all_scores(encoded_systems(encoded)["mean"], encoded)[0]
    np.testing.assert_allclose(scores, encoded.vectors @ query, atol=1e-5)
    unit = Aggregation().scores(encoded.first[0], encoded.second[0], encoded.vectors)
    assert not np.allclose(scores, unit, atol=1e-4)


def test_max_sim_scores_a_short_list_and_keeps_the_order_of_the_query_behind_it(
    tiny_encoder: Encoders, dialogues: list[Dialogue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "MAX_SIM_LIST", 4)
    encoded = encode_split(tiny_encoder(EncoderKind.TRIPLE), make_split(dialogues, [5]))
    found = encoded_systems(encoded)
    by_query = all_scores(found["mean"], encoded)[0]
    by_max_sim = all_scores(found["MaxSim"], encoded)[0]
    order = np.argsort(-by_query)
    assert set(np.argsort(-by_max_sim)[:4]) == set(order[:4])
    expected = max_sim(encoded.first[0], encoded.second[0], encoded.vectors[order[:4]])
    np.testing.assert_allclose(by_max_sim[order[:4]], expected, atol=1e-6)
    np.testing.assert_array_equal(np.argsort(-by_max_sim)[4:], order[4:])


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_the_work_of_a_turn_computes_the_query_or_the_new_row(
    kind: EncoderKind, tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    encoded = encode_split(tiny_encoder(kind), make_split(dialogues[2:4], [3]))
    found = encoded_systems(encoded)
    for name, system in found.items():
        of_rows = kind.paired and name != "bi-encoder"
        expected = all_scores(found["last 1 row"] if of_rows else system, encoded)[1]
        np.testing.assert_allclose(encoded.vectors @ system.work(1), expected, atol=1e-4)


def test_a_long_text_keeps_its_end(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.SINGLE)
    end = "x " * 40 + "y " * 100
    vectors = encode_from_left(encoder, ["a b c d " + end, "e f g h " + end])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)
    start = encoder.encode(["a b c d " * 40 + "y", "a b c d " * 40 + "z"], Role.AFTER)
    np.testing.assert_allclose(start[0], start[1], atol=1e-5)


@pytest.fixture
def split(dialogues: list[Dialogue]) -> Split:
    return make_split(dialogues, [2, 5], full_pool=False)


def fixed(scores: Sequence[float]) -> System:
    """A system whose scores of the candidates 0, 1, ... are the same for every context."""
    row = np.array(scores, np.float32)

    def of(contexts: Indices, candidates: Indices) -> Scores:
        return np.tile(row[candidates], (len(contexts), 1))

    return System("fixed", of)


def test_pairwise_scores_are_cosines_of_context_and_response(
    pairwise: PairwiseModel, split: Split
) -> None:
    contexts = [context.texts for context in split.contexts]
    expected = pairwise.encode_contexts(contexts) @ pairwise.encode_responses(split.pool).T
    everything = np.arange(len(contexts)), np.arange(len(split.pool))
    system = pairwise_system(pairwise, split)
    np.testing.assert_allclose(system.scores(*everything), expected, atol=1e-5)
    query = pairwise.encode_contexts(contexts[3:4])[0]
    np.testing.assert_allclose(system.work(3), query, atol=1e-5)


def test_a_reading_system_reads_the_context_with_each_candidate(ioi: IoI, split: Split) -> None:
    def score(context: Context, texts: Sequence[str]) -> Scores:
        return ioi.scores(context.texts, texts)

    scores = reading_system("ioi", score, split).scores(np.array([1, 4]), np.array([2, 0]))
    texts = [split.pool[2], split.pool[0]]
    expected = [ioi.scores(split.contexts[place].texts, texts) for place in (1, 4)]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_each_place_is_scored_once() -> None:
    seen: list[int] = []

    def scores(contexts: Indices, candidates: Indices) -> Scores:
        seen.extend(candidates)
        return fixed([5, 6, 7]).scores(contexts, candidates)

    assert scores_of(System("noted", scores), 0, np.array([2, 1, 2])).tolist() == [7, 6, 7]
    assert sorted(seen) == [1, 2]


def test_the_second_system_orders_the_short_list_and_reads_no_more() -> None:
    first = [5.0, 4.0, 3.0, 2.0, 1.0]
    second = [-9.0, 9.0, 8.0, 99.0, 99.0]
    one = np.array([0])
    seen = []

    def scores(contexts: Indices, candidates: Indices) -> Scores:
        seen.extend(candidates)
        return fixed(second).scores(contexts, candidates)

    final = reranked_system(fixed(first), System("second", scores), 3)
    assert list(np.argsort(-final.scores(one, np.arange(5))[0])) == [1, 2, 0, 3, 4]
    assert sorted(seen) == [0, 1, 2]
    everything = reranked_system(fixed(first), fixed(second)).scores(one, np.arange(5))
    assert everything[0].tolist() == second


@pytest.mark.parametrize(
    ("aggregation", "name", "finder"),
    [
        (Aggregation("mean"), "mean", "mean"),
        (Aggregation("max_sim"), "MaxSim", "mean"),
        (Aggregation("last_rows", 1), "last 1 row", "last 1 row"),
        (Aggregation("last_rows", 9), "last 9 rows", "last 9 rows"),
    ],
)
def test_the_system_of_the_model_card_scores_by_its_aggregation(
    tiny_encoder: Encoders, split: Split, aggregation: Aggregation, name: str, finder: str
) -> None:
    encoded = encode_split(tiny_encoder(EncoderKind.TRIPLE), split)
    system = recommended_system(encoded, aggregation)
    assert (system.name, retriever_system(encoded, aggregation).name) == (name, finder)
    both = zip(encoded.first, encoded.second, strict=True)
    expected = [aggregation.scores(b1, b2, encoded.vectors) for b1, b2 in both]
    np.testing.assert_allclose(all_scores(system, encoded), expected, atol=1e-4)
