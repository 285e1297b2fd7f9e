"""Parts: candidates, examples and vectors in Parquet files."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.unit.pools.conftest import unit_vectors
from turnwise.models.errors import DataError
from turnwise.models.roles import EncoderKind
from turnwise.service.pools import Candidate
from turnwise.service.pools.files.catalogue import Catalogue
from turnwise.service.pools.files.parts import EncodedBy, PartsError, PartsFolder, PartsManifest
from turnwise.service.pools.view import CandidateBatch

ENCODED_BY = EncodedBy(model="tiny", fingerprint="tiny", dimension=8, kind=EncoderKind.TRIPLE)
CANDIDATES = [
    Candidate.of("Nine.", "a", {"tag": ["ü", None]}, examples=["When?", "Hours?"], group="hours"),
    Candidate.of("Bye.", "b", body="Bye.\n\nBye."),
    Candidate.of("Card.", "c", examples=["How can I pay?"]),
]
VECTORS = unit_vectors(3, 8).astype(np.float16)
EXAMPLES = unit_vectors(3, 8, seed=1).astype(np.float16)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The only part of a folder."""
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(c.record()) for c in CANDIDATES))
    folder = PartsFolder(str(tmp_path / "out"))
    manifest = PartsManifest.of(Catalogue.read([str(tmp_path / "a.jsonl")]), ENCODED_BY)
    folder.begin(manifest)
    (part,) = manifest.parts
    folder.write(ENCODED_BY, part, CandidateBatch(CANDIDATES, VECTORS, EXAMPLES))
    return tmp_path / "out" / part.name


def read(file: Path) -> CandidateBatch:
    folder = PartsFolder(str(file.parent))
    (batch,) = folder.batches(folder.manifest())
    return batch


def test_a_part_comes_back_as_it_was(file: Path) -> None:
    batch = read(file)
    assert batch.candidates == CANDIDATES
    assert batch.vectors.tobytes() == VECTORS.tobytes()
    assert batch.examples.tobytes() == EXAMPLES.tobytes()


def test_a_part_of_an_earlier_release_has_no_examples_and_bodies(file: Path) -> None:
    table = parquet.read_table(file)
    parquet.write_table(table.drop_columns(["examples", "example_vectors", "group", "body"]), file)
    batch = read(file)
    assert batch.candidates == [Candidate.of(c.text, c.id, c.metadata) for c in CANDIDATES]
    assert batch.examples.shape == (0, 8)


@pytest.mark.parametrize("column", ["examples", "example_vectors"])
def test_a_part_needs_a_vector_for_each_example(file: Path, column: str) -> None:
    table = parquet.read_table(file)
    parquet.write_table(table.drop_columns([column]), file)
    with pytest.raises(PartsError, match="not one vector for each example"):
        read(file)


def test_an_id_that_repeats_is_named(file: Path) -> None:
    table = parquet.read_table(file)
    ids = pa.array(["a", "b", "a"])
    changed = table.set_column(table.column_names.index("id"), "id", ids)
    parquet.write_table(changed.replace_schema_metadata(table.schema.metadata), file)
    with pytest.raises(PartsError, match="'a' is the id of several candidates"):
        read(file)


def test_a_part_obeys_the_limits_of_uploads(file: Path) -> None:
    table = parquet.read_table(file)
    texts = pa.array(["x" * 2001, "Bye.", "Card."])
    changed = table.set_column(table.column_names.index("text"), "text", texts)
    parquet.write_table(changed.replace_schema_metadata(table.schema.metadata), file)
    with pytest.raises(DataError, match=r'"text": 2001 characters are more than the limit'):
        read(file)
