from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import erf
from sentence_transformers import SentenceTransformer

from tests.unit.models.conftest import Encoders, Folder
from turnwise.models.arrays import Float32
from turnwise.models.card import update_card
from turnwise.models.encoder.head_arrays import HEADS, HEADS_FILE
from turnwise.models.encoder.heads import RIDGE, RoleHeads
from turnwise.models.encoder.stated import StatedEncoder
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText

D = 16
AS_READ = [(Role.AFTER, None), (Role.SAID, None)]


@pytest.fixture
def heads() -> RoleHeads:
    torch.manual_seed(0)
    made = RoleHeads(D)
    torch.nn.init.normal_(made.down, std=0.3)
    torch.nn.init.normal_(made.linear, std=0.3)
    return made.eval()


@pytest.fixture
def after() -> Float32:
    drawn = np.random.default_rng(0).normal(size=(5, D))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("role", "relation"), HEADS)
def test_a_head_is_the_normalised_sum_of_a_linear_map_and_a_network(
    heads: RoleHeads, after: Float32, role: Role, relation: Relation
) -> None:
    w, u, v = (
        weights.detach().numpy()[HEADS.index((role, relation))].astype(np.float64)
        for weights in (heads.linear, heads.up, heads.down)
    )
    hidden = after @ u
    hidden = hidden * (1 + erf(hidden / 2**0.5)) / 2  # gelu
    wanted = after @ w + hidden @ v
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    items = [RoleText("", role, relation)] * len(after)
    got = heads.in_roles(after, items)
    assert got.dtype == np.float32
    assert_allclose(got, wanted, atol=1e-3)  # the usual approximation of gelu by tanh
    with torch.no_grad():
        trained = heads(torch.from_numpy(after), items).numpy()
    assert_allclose(got, trained, atol=1e-6)


def test_heads_start_from_a_regression_and_come_closer_to_the_teacher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnwise.models.encoder.heads.FIT_STEPS", 100)
    drawn = np.random.default_rng(1).normal(size=(len(HEADS), 400, D))
    seen = drawn / np.linalg.norm(drawn, axis=2, keepdims=True)
    maps = np.random.default_rng(2).normal(size=(len(HEADS), D, D))
    taught = np.tanh(2 * seen @ maps)
    taught /= np.linalg.norm(taught, axis=2, keepdims=True)
    torch.manual_seed(0)
    heads = RoleHeads(D)
    regression = RoleHeads(D)
    read = torch.from_numpy(seen).float()
    wanted = torch.from_numpy(taught).float()
    heads.fit_to_teacher(read, wanted)
    monkeypatch.setattr("turnwise.models.encoder.heads.FIT_STEPS", 0)
    regression.fit_to_teacher(read, wanted)
    penalty = RIDGE * 400 / D * np.eye(D)
    for head, ((role, relation), x, y) in enumerate(zip(HEADS, seen, taught, strict=True)):
        w = np.linalg.inv(x.T @ x + penalty) @ x.T @ y
        assert_allclose(regression.linear[head].detach(), w, atol=1e-4)
        linear = x @ w
        linear /= np.linalg.norm(linear, axis=1, keepdims=True)
        ours = heads.in_roles(x.astype(np.float32), [RoleText("", role, relation)] * len(x))
        assert (ours * y).sum(1).mean() > (linear * y).sum(1).mean()


def test_each_text_gets_its_own_role(heads: RoleHeads, after: Float32) -> None:
    items = [RoleText("", role, relation) for role, relation in [*AS_READ, *HEADS]]
    after = after[[0, 1, 2, 3, 4, 0, 1, 2]]
    got = heads.in_roles(after, items)
    assert_allclose(got[:2], after[:2])
    for place, item in enumerate(items):
        assert_allclose(got[place], heads.in_roles(after[place : place + 1], [item])[0], atol=1e-6)
    assert len({tuple(vector) for vector in heads.in_roles(after[[0] * 8], items)}) == 7


def test_an_older_file_lacks_the_head_of_the_newest_utterance(
    heads: RoleHeads, after: Float32, tmp_path: Path
) -> None:
    older = RoleHeads(D, len(HEADS) - 1)
    for weights, theirs in zip(older.parameters(), heads.parameters(), strict=True):
        weights.data = theirs.data[:-1]
    older.save(tmp_path)
    loaded = RoleHeads.load(tmp_path / HEADS_FILE)
    newest = [RoleText("", Role.SECOND, Relation.OTHER)] * len(after)
    assert (loaded.in_roles(after, newest) == after).all()
    assert (loaded(torch.from_numpy(after), newest).numpy() == after).all()
    resumed = RoleHeads(D)
    resumed.start_from(loaded)
    items = [RoleText("", *HEADS[0])] * len(after)
    assert (resumed.in_roles(after, items) == loaded.in_roles(after, items)).all()
    assert_allclose(resumed.in_roles(after, newest), after, atol=1e-6)


def test_heads_are_kept_in_half_precision(heads: RoleHeads, after: Float32, tmp_path: Path) -> None:
    heads.save(tmp_path)
    items = [RoleText("", Role.FIRST, Relation.OTHER)] * len(after)
    loaded = RoleHeads.load(tmp_path / HEADS_FILE)
    assert_allclose(loaded.in_roles(after, items), heads.in_roles(after, items), atol=2e-3)


def test_heads_whose_sizes_do_not_fit_are_refused(heads: RoleHeads, tmp_path: Path) -> None:
    heads.up = torch.nn.Parameter(heads.up[:, :, 1:])
    heads.save(tmp_path)
    with pytest.raises(ModelError, match="their shapes do not fit"):
        RoleHeads.load(tmp_path / HEADS_FILE)


@pytest.mark.parametrize("content", [b"", b"no tensors"])
def test_a_file_without_heads_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / HEADS_FILE
    file.write_bytes(content)
    with pytest.raises(ModelError, match=HEADS_FILE):
        RoleHeads.load(file)


def test_a_card_of_an_encoder_with_heads_needs_their_file(
    tiny_encoder: Encoders, tmp_path: Path
) -> None:
    update_card(tmp_path, "encoder", tiny_encoder(EncoderKind.HEADS).facts)
    with pytest.raises(ModelError, match=rf"model '{tmp_path}': {HEADS_FILE} is missing"):
        StatedEncoder(tmp_path)


def test_an_encoder_with_heads_reads_a_text_as_said_and_as_a_candidate(
    tiny_encoder: Encoders, tiny_encoder_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder(EncoderKind.HEADS)
    assert encoder.kind is EncoderKind.HEADS
    read: list[int] = []
    forward = encoder.forward
    monkeypatch.setattr(
        encoder, "forward", lambda tokens: (read.append(len(tokens)), forward(tokens))[1]
    )
    items = [RoleText("Hello", role, relation) for role, relation in [*AS_READ, *HEADS]]
    vectors = encoder.encode_in_roles(items)
    assert read == [2]
    plain = SentenceTransformer(str(tiny_encoder_folder(EncoderKind.HEADS)), device="cpu")
    exact = plain.encode(["[AFTER] Hello", "[B2] [O] [BEFORE] Hello"], normalize_embeddings=True)
    assert_allclose(vectors[:2], exact, atol=1e-5)
    assert_allclose(vectors[2], encoder.encode(["Hello"], *HEADS[0])[0], atol=1e-6)


def test_heads_need_the_tokens_of_a_triple_encoder(
    heads: RoleHeads, tiny_encoder_folder: Folder
) -> None:
    plain = SentenceTransformer(str(tiny_encoder_folder(EncoderKind.CURVED)), device="cpu")
    with pytest.raises(ModelError, match="has heads, but not the special tokens"):
        UtteranceEncoder(plain, heads=heads)
