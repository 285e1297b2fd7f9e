"""Model folders that are refused with a reason."""

import json
import logging
import shutil
from pathlib import Path
from threading import Event
from time import monotonic

import httpx
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from tests.support.rerankers import save_tiny_classifier
from tests.support.waiting import PATIENCE
from tests.unit.models.conftest import Folder
from turnwise.models import model_files
from turnwise.models.card import EncoderFacts, Probe, update_card
from turnwise.models.encoder.stated import StatedEncoder
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.model_files import PROMPTS_FILE, hub_answers
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.roles import EncoderKind
from turnwise.models.training.base import load_learnable

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n"


@pytest.fixture
def folder(tmp_path: Path, tiny_encoder_folder: Folder) -> Path:
    return shutil.copytree(tiny_encoder_folder(EncoderKind.SINGLE), tmp_path / "model")


def pickle_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def set_prompts(folder: Path, default: str | None) -> None:
    file = folder / PROMPTS_FILE
    prompts = {"query": "query: ", "document": "passage: ", "plain": ""}
    settings = json.loads(file.read_text()) | {"prompts": prompts, "default_prompt_name": default}
    file.write_text(json.dumps(settings))


def test_pickled_weights_of_an_encoder_are_refused(folder: Path) -> None:
    pickle_weights(folder)
    with pytest.raises(ModelError, match=r"pytorch_model\.bin' is a pickle"):
        UtteranceEncoder(folder, device="cpu")


def test_pickled_weights_of_a_cross_encoder_are_refused(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    save_tiny_classifier(tmp_path, pair_tokenizer, 1, longest=32)
    pickle_weights(tmp_path)
    with pytest.raises(ModelError, match=r"pytorch_model\.bin' is a pickle"):
        CrossEncoder(tmp_path, device="cpu")


@pytest.mark.parametrize(
    "file", ["2_Dense/pytorch_model.bin", "0_Router/1_Dense/pytorch_model.bin", "adapter_model.bin"]
)
def test_a_pickle_of_a_module_is_refused_whatever_lies_next_to_it(folder: Path, file: str) -> None:
    pickle = folder / file
    pickle.parent.mkdir(parents=True, exist_ok=True)
    pickle.write_bytes(b"not even a pickle")
    (pickle.parent / "heads.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=rf"{pickle.name}' is a pickle"):
        load_learnable(str(folder))


def test_code_of_a_model_is_neither_run_nor_recommended(folder: Path) -> None:
    config = {"model_type": "ours", "auto_map": {"AutoConfig": "configuration_ours.Ours"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_ours.py").write_text("raise SystemExit")
    with pytest.raises(ModelError, match="needs code of its own") as caught:
        UtteranceEncoder(folder, device="cpu")
    assert "trust_remote_code" not in str(caught.value)


@pytest.mark.usefixtures("unasked_hub")
def test_a_name_of_the_hub_fails_at_once_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    started = monotonic()
    with pytest.raises(ModelError, match="not a folder, and the hub cannot be reached"):
        UtteranceEncoder("somebody/model", device="cpu")
    assert monotonic() < started + 30


@pytest.mark.usefixtures("unasked_hub")
def test_the_hub_has_not_answered_while_its_address_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up = Event()
    monkeypatch.setattr(model_files, "HUB_SECONDS", 0.05)
    monkeypatch.setattr(httpx, "head", lambda *_, **__: looked_up.wait(PATIENCE))
    assert not hub_answers()
    looked_up.set()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named(folder: Path, file: str) -> None:
    (folder / file).write_text(POINTER)
    with pytest.raises(ModelError, match=rf"{file}' is a pointer of Git LFS.*git lfs pull"):
        UtteranceEncoder(folder, device="cpu")


def test_a_pointer_among_the_files_of_a_replica_is_named(tmp_path: Path) -> None:
    (tmp_path / "heads.safetensors").write_text(POINTER)
    update_card(tmp_path, "encoder", EncoderFacts(EncoderKind.HEADS, 1, "f", [Probe("a", [1.0])]))
    with pytest.raises(ModelError, match="is a pointer of Git LFS"):
        StatedEncoder(tmp_path)


def test_a_default_prompt_is_refused_and_not_claimed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    set_prompts(folder, "query")
    with caplog.at_level(logging.INFO), pytest.raises(ModelError, match="needs the prompt 'query"):
        UtteranceEncoder(folder, device="cpu")
    assert "prompt" not in caplog.text


@pytest.mark.parametrize("default", [None, "plain"])
def test_prompts_that_no_text_gets_by_default_change_nothing(
    folder: Path, default: str | None
) -> None:
    set_prompts(folder, default)
    UtteranceEncoder(folder, device="cpu")
