import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.processor import needs_vnni
from turnwise.models import DEFAULT_MODEL
from turnwise.models.card import read_card
from turnwise.models.encoder import onnx as onnx_module
from turnwise.models.encoder.onnx import EIGHT_BITS_FILE, FILE, OnnxEncoder
from turnwise.models.encoder.torch import UtteranceEncoder, tokenize
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs
from turnwise.models.training.config import EncoderConfig, read_stages, rename_fields

REPLIES = Path(__file__).parents[3] / "examples" / "replies.jsonl"
RECIPES = DEFAULT_MODEL.parent / "training" / "recipes"


@pytest.fixture(scope="module")
def encoder() -> UtteranceEncoder:
    return UtteranceEncoder(device="cpu")


def test_it_is_small_and_holds_no_pickle() -> None:
    files = [path for path in DEFAULT_MODEL.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 60_000_000
    assert {path.suffix for path in files} <= {".safetensors", ".onnx", ".json", ".md", ".txt"}


def test_its_graph_computes_what_the_model_does(
    encoder: UtteranceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_module, "multiplies_bytes", lambda: False)
    assert (DEFAULT_MODEL / FILE).stat().st_size < 100_000, "the weights are in model.safetensors"
    served = OnnxEncoder(DEFAULT_MODEL)
    texts = ("", "Is breakfast included?", "Ça va? 好的 \u200d👍 [AFTER]")
    items = [RoleText(text, role, Relation.OTHER) for role in Role for text in texts]
    items.append(RoleText("so " * 300, Role.SECOND, Relation.OTHER))
    tokens = encoder.tokenize(items)
    assert served.tokenize(items) == tokens
    read = served.forward(tokens)
    assert read == pytest.approx(encoder.forward(tokens), abs=1e-5)
    in_roles = served.in_roles(read, items)
    assert in_roles == pytest.approx(encoder.encode_in_roles(items), abs=1e-5)
    assert served.fingerprint == encoder.fingerprint


def test_the_products_of_its_graph_in_8_bits_are_of_integers() -> None:
    graph = onnx.load(DEFAULT_MODEL / EIGHT_BITS_FILE, load_external_data=False).graph
    operators = [node.op_type for node in graph.node]
    layers = 6
    assert operators.count("QAttention") == layers
    assert operators.count("MatMulIntegerToFloat") == 2 * layers
    assert operators.count("MatMul") == layers


def test_it_reads_utterances_without_typing_errors(encoder: UtteranceEncoder) -> None:
    said = RoleText("Whre is my oredr? I'd like to cancle it.", Role.SAID)
    assert encoder.prefixed(said).endswith("where is my order? I'd like to cancel it.")


@needs_vnni
def test_it_ranks_in_8_bits_as_in_float32(encoder: UtteranceEncoder) -> None:
    served = OnnxEncoder(DEFAULT_MODEL)
    assert served.runtime == "onnxruntime 8 bits on cpu"
    lines = REPLIES.read_text(encoding="utf-8").splitlines()[::6]
    texts = [json.loads(line)["text"] for line in lines]
    said = [RoleText(text, Role.SECOND, Relation.OTHER) for text in texts[:20]]
    best: list[list[set[int]]] = []
    for each in (encoder, served):
        candidates, queries = (
            each.forward(each.tokenize(items)) for items in (candidate_inputs(texts), said)
        )
        ten = np.argsort(-(queries @ candidates.T), axis=1)[:, :10]
        best.append([set(row) for row in ten.tolist()])
    stay = [len(exact & rounded) / 10 for exact, rounded in zip(*best, strict=True)]
    assert np.mean(stay) > 0.94


def read_default_stages() -> list[EncoderConfig]:
    stages = read_stages(RECIPES / "default.toml")
    return [stage for stage in stages if isinstance(stage, EncoderConfig)]


def test_it_was_trained_by_the_recipe() -> None:
    recipe = read_default_stages()[-1].model_dump(mode="json")
    trained = rename_fields(json.loads((DEFAULT_MODEL / "turnwise.json").read_text())["trained"])
    same = ("data", "optimiser", "validation", "keep_base", "eight_bits", "spaced", "turns", "seed")
    for name in same:
        assert trained[name] == recipe[name], name
    assert recipe["objectives"] | trained["objectives"] == recipe["objectives"]


def test_its_card_states_what_it_computes(encoder: UtteranceEncoder) -> None:
    stated = read_card(DEFAULT_MODEL).encoder
    assert stated is not None
    assert (stated.kind, stated.dimension) == (encoder.kind, encoder.dimension)
    assert stated.fingerprint == encoder.fingerprint
    texts = [probe.text for probe in stated.probes]
    assert not stated.differs(encoder.forward(tokenize(encoder.model, texts)))
    shorter = tokenize(encoder.model, texts)
    assert stated.differs(encoder.forward([ids[:128] for ids in shorter]))  # another limit
