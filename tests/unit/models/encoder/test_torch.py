import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from transformers import PreTrainedTokenizerFast

from tests.unit.models.conftest import Encoders, Folder
from turnwise.models.card import CARD, model_name, read_card
from turnwise.models.encoder.torch import UtteranceEncoder, batches
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText, prefix
from turnwise.models.scores import Aggregation

TEXTS = ["good evening", "two rooms please", "good evening", "a long reply " * 5, ""]


def test_what_a_run_trained_goes_by_the_name_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "shop" / "model").mkdir(parents=True)
    assert model_name(tmp_path / "shop" / "model") == "shop"
    assert model_name(tmp_path / "shop") == "shop"
    assert model_name("somebody/model") == "somebody/model"


@pytest.mark.parametrize("kind", sorted(set(EncoderKind) - {EncoderKind.HEADS}))
def test_vectors_are_those_of_sentence_transformers_with_the_prefix(
    tiny_encoder: Encoders, tiny_encoder_folder: Folder, kind: EncoderKind
) -> None:
    assert tiny_encoder(kind).kind is kind
    plain = SentenceTransformer(str(tiny_encoder_folder(kind)), device="cpu")
    for role in Role:
        read = None if role is Role.AFTER else Relation.OTHER
        prefixed = [prefix(kind, role, read) + text for text in TEXTS]
        wanted = plain.encode(prefixed, normalize_embeddings=True, show_progress_bar=False)
        got = tiny_encoder(kind).encode(TEXTS, role, Relation.OTHER)
        assert got == pytest.approx(wanted, abs=1e-5), role


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("abc de", min_size=1, max_size=60), min_size=1, max_size=9))
def test_a_vector_does_not_depend_on_its_batch(tiny_encoder: Encoders, texts: list[str]) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    together = encoder.encode(texts, Role.SECOND, Relation.SAME)
    alone = np.concatenate([encoder.encode([t], Role.SECOND, Relation.SAME) for t in texts])
    assert together == pytest.approx(alone, abs=1e-5)


def test_one_text_is_not_taken_for_a_list_of_letters(tiny_encoder: Encoders) -> None:
    with pytest.raises(TypeError, match="not one text"):
        tiny_encoder(EncoderKind.TRIPLE).encode("good evening", Role.AFTER)


def test_the_fingerprint_tells_models_apart(
    tiny_encoder: Encoders, tiny_encoder_folder: Folder
) -> None:
    again = UtteranceEncoder(tiny_encoder_folder(EncoderKind.TRIPLE), device="cpu")
    assert again.fingerprint == tiny_encoder(EncoderKind.TRIPLE).fingerprint
    assert len({tiny_encoder(kind).fingerprint for kind in EncoderKind}) == len(EncoderKind)


def test_settings_that_change_vectors_change_the_fingerprint_and_nothing_else_does(
    tiny_encoder: Encoders, tiny_encoder_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(module: int, name: str, value: object) -> str:
        encoder = UtteranceEncoder(tiny_encoder_folder(EncoderKind.TRIPLE), device="cpu")
        setattr(encoder.model[module], name, value)
        return encoder.fingerprint

    before = tiny_encoder(EncoderKind.TRIPLE).fingerprint
    shorter = changed(0, "max_seq_length", 7)
    pooled = changed(1, "pooling_mode", "cls")
    assert len({before, shorter, pooled}) == 3
    # Versions of sentence-transformers print their modules differently.
    monkeypatch.setattr(Pooling, "__repr__", lambda _: "Pooling()")
    assert changed(1, "any_other", 7) == before


def copy_with_card(model: Path, folder: Path, aggregation: str) -> None:
    shutil.copytree(model, folder)
    (folder / CARD).write_text(json.dumps({"aggregation": {"name": aggregation, "last_rows": 3}}))


def test_the_card_of_a_package_is_read(
    tiny_encoder_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "turnwise_test_weights"
    copy_with_card(tiny_encoder_folder(EncoderKind.TRIPLE), package / "model", "last_rows")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    encoder = UtteranceEncoder("package:turnwise_test_weights/model", device="cpu")
    assert encoder.aggregation == Aggregation("last_rows", 3)


@pytest.mark.parametrize("card", [True, False])
def test_the_card_of_a_hub_model_is_read_where_it_has_one(
    tiny_encoder_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: bool
) -> None:
    repository = tmp_path / "models--somebody--bot"
    commit = "0" * 40
    snapshot = repository / "snapshots" / commit
    copy_with_card(tiny_encoder_folder(EncoderKind.TRIPLE), snapshot, "max_sim")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    if not card:
        (snapshot / CARD).unlink()
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    encoder = UtteranceEncoder("somebody/bot", device="cpu")
    assert encoder.aggregation == (Aggregation("max_sim", 3) if card else Aggregation())


FACTS = {"kind": "triple", "dimension": 32, "fingerprint": "f", "probes": []}
NO_PROBES = json.dumps({"aggregation": {"name": "mean"}, "encoder": FACTS})


@pytest.mark.parametrize(
    "text", ["no JSON", "[]", "{}", '{"aggregation": {"name": "median"}}', NO_PROBES]
)
def test_a_card_that_recommends_nothing_known_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / CARD).write_text(text)
    with pytest.raises(ModelError, match=f"model '{tmp_path}': {CARD} is not a model card"):
        read_card(tmp_path)


def test_bfloat16_keeps_the_vectors_close(
    tiny_encoder: Encoders, tiny_encoder_folder: Folder
) -> None:
    half = UtteranceEncoder(
        tiny_encoder_folder(EncoderKind.TRIPLE), device="cpu", precision="bfloat16"
    )
    got = half.encode(TEXTS, Role.AFTER)
    assert got.dtype == np.float32
    assert got == pytest.approx(
        tiny_encoder(EncoderKind.TRIPLE).encode(TEXTS, Role.AFTER), abs=0.05
    )


@pytest.mark.parametrize("name", ["absent/folder", "package:no_such_package/model"])
def test_what_cannot_be_loaded_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=name):
        UtteranceEncoder(name, device="cpu")


def test_a_folder_of_other_or_broken_files_is_named(
    tmp_path: Path, tiny_encoder_folder: Folder, word_tokenizer: PreTrainedTokenizerFast
) -> None:
    static = SentenceTransformer(
        modules=[StaticEmbedding(word_tokenizer.backend_tokenizer, None, 8)]
    )
    static.save(str(tmp_path / "static"))
    with pytest.raises(ModelError, match="static' has no transformer"):
        UtteranceEncoder(tmp_path / "static", device="cpu")
    for file, content in (("tokenizer.json", "{}"), ("config.json", '{"model_type": 3}')):
        folder = shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / file)
        (folder / file).write_text(content)
        with pytest.raises(ModelError, match=f"^model '{folder}' cannot be loaded"):
            UtteranceEncoder(folder, device="cpu")


@given(st.lists(st.integers(1, 90), max_size=60), st.integers(1, 200))
def test_batches_hold_each_place_once_within_the_budget(lengths: list[int], budget: int) -> None:
    grouped = list(batches(lengths, budget))
    assert sorted(p for places in grouped for p in places) == list(range(len(lengths)))
    for places in grouped:
        longest = max(lengths[p] for p in places)
        assert len(places) == 1 or len(places) * longest <= budget


def test_no_text_holds_a_token_with_a_meaning(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    special = set(encoder.model.tokenizer.all_special_ids)
    plain, tricky = (
        [token for token in encoder.tokenize([RoleText(text, Role.AFTER)])[0] if token in special]
        for text in ("Hello", "Hello [AFTER] [B2] [O] [SEP] [CLS] [MASK] [PAD] [UNK]")
    )
    assert tricky == plain
