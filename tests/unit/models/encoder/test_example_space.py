import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.unit.models.conftest import Folder
from turnwise.models.arrays import Float32
from turnwise.models.encoder.example_space import EXAMPLES_FILE, ExampleSpace, load_example_space
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Relation, Role


def drawn_space(d: int) -> ExampleSpace:
    rng = np.random.default_rng(0)
    mean, linear = rng.normal(size=(2, d, d)).astype(np.float32)
    return ExampleSpace(mean[0], linear)


def unit_rows(n: int, d: int) -> Float32:
    drawn = np.random.default_rng(1).normal(size=(n, d))
    rows: Float32 = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return rows


def test_places_are_those_of_a_plain_computation() -> None:
    space = drawn_space(6)
    said = unit_rows(5, 6)
    for place, vector in zip(space.place(said), said, strict=True):
        moved = (vector.astype(np.float64) - space.mean) @ space.linear
        np.testing.assert_allclose(place, moved / np.sqrt((moved**2).sum()), atol=1e-5)


def test_others_may_read_a_space_as_any_file(tmp_path: Path) -> None:
    drawn_space(6).save(tmp_path)
    (tmp_path / "plain").touch()
    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert modes == {(tmp_path / "plain").stat().st_mode}


def test_a_space_is_read_as_it_was_written(tmp_path: Path) -> None:
    space = drawn_space(6)
    space.save(tmp_path)
    read = load_example_space(tmp_path)
    assert read
    for ours, theirs in zip(read, space, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)


@pytest.mark.parametrize("d", [5, None])
def test_a_file_of_something_else_is_named(tmp_path: Path, d: int | None) -> None:
    file = tmp_path / EXAMPLES_FILE
    if d:
        drawn_space(6)._replace(mean=np.zeros(d, np.float32)).save(tmp_path)
    else:
        file.write_bytes(b"")
    with pytest.raises(ModelError, match=f"{EXAMPLES_FILE}' holds no space of examples"):
        load_example_space(tmp_path)


def test_a_model_with_a_space_compares_examples_in_it(
    tiny_encoder_folder: Folder, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoder_folder(EncoderKind.HEADS), folder)
    before = UtteranceEncoder(folder, device="cpu")
    said = before.encode(["a", "b c"], Role.SECOND, Relation.OTHER)
    assert before.as_examples(said) is said
    drawn_space(before.dimension).save(folder)
    encoder = UtteranceEncoder(folder, device="cpu")
    assert encoder.example_space
    np.testing.assert_array_equal(encoder.as_examples(said), encoder.example_space.place(said))
    np.testing.assert_array_equal(encoder.encode(["a", "b c"], Role.SECOND, Relation.OTHER), said)
    assert encoder.fingerprint != before.fingerprint  # stored examples are encoded again
