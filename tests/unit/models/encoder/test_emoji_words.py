import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from tests.unit.models.conftest import Folder
from turnwise.models.encoder import export
from turnwise.models.encoder.emoji_words import EMOJI_FILE, EmojiWords
from turnwise.models.encoder.onnx import FILE, OnnxEncoder
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Role, RoleText
from turnwise.service.cli.models.card import card

SAID = RoleText("👍", Role.AFTER)
IN_WORDS = RoleText("thumbs up sign", Role.AFTER)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("👍", "thumbs up sign"),
        ("ok👍🏽!", "ok thumbs up sign !"),
        ("I ❤️ it", "I heavy black heart it"),
        ("No  emoji,\n 日本 ™", "No  emoji,\n 日本 ™"),
        ("", ""),
    ],
)
def test_emoji_become_their_names_and_other_texts_stay(text: str, read: str) -> None:
    assert EmojiWords.of_unicode().write(text) == read


@pytest.fixture
def folder(tiny_encoder_folder: Folder, tmp_path: Path) -> Path:
    """A copy of a model, to be changed."""
    return Path(shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / "model"))


def test_a_folder_with_words_is_another_model_that_reads_them(
    with_graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(with_graph, tmp_path / "model"))
    graph = SimpleNamespace(model_proto=onnx.load(folder / FILE))
    monkeypatch.setattr(export, "convert", lambda *_: graph)  # which takes seconds
    plain = UtteranceEncoder(folder, device="cpu")
    assert plain.prefixed(SAID) == "[AFTER] 👍"
    card(str(folder), emoji=True)
    encoders: list[UtteranceEncoder | OnnxEncoder] = [
        UtteranceEncoder(folder, device="cpu"),
        OnnxEncoder(folder),
    ]
    for encoder in encoders:
        assert encoder.fingerprint == encoders[0].fingerprint != plain.fingerprint
        assert encoder.prefixed(SAID) == plain.prefixed(IN_WORDS)
        assert encoder.tokenize([SAID]) == plain.tokenize([IN_WORDS])
    replica = folder.parent / "replica"
    card(str(folder), out=replica)
    assert (replica / EMOJI_FILE).read_bytes() == (folder / EMOJI_FILE).read_bytes()
    (folder / EMOJI_FILE).unlink()
    assert UtteranceEncoder(folder, device="cpu").fingerprint == plain.fingerprint


@pytest.mark.parametrize("content", ["{", "{}", json.dumps({"👍": 1}), json.dumps({"ab": "c"})])
def test_words_that_cannot_be_read_are_the_model_s_fault(folder: Path, content: str) -> None:
    (folder / EMOJI_FILE).write_text(content)
    with pytest.raises(ModelError, match=r"emoji\.json cannot be read"):
        EmojiWords.of_model(folder)
