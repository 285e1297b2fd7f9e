from pathlib import Path

import pytest

from turnwise.models.errors import DataError
from turnwise.service.errors import InvalidRequest
from turnwise.service.pools import Candidate, read_candidates
from turnwise.service.pools.candidate import distinct


def test_an_id_that_is_left_out_follows_from_the_text() -> None:
    one, same, other = (Candidate.of(text) for text in ("Hello.", "Hello.", "Bye."))
    assert one == same
    assert one.id != other.id
    assert len(one.id) == 16
    assert Candidate.of("Hello.", "mine", {"a": 1}) == Candidate("mine", "Hello.", {"a": 1})


def test_metadata_is_alike_where_its_json_is() -> None:
    one = Candidate.of("Hello.", metadata={"vip": 1, "tags": [1]})
    assert one == Candidate.of("Hello.", metadata={"tags": [1], "vip": 1})
    for other in ({"vip": True, "tags": [1]}, {"vip": 1, "tags": [1.0]}, {"vip": 1}):
        assert one != Candidate.of("Hello.", metadata=other)
    with pytest.raises(InvalidRequest, match="differ"):
        distinct([one, Candidate.of("Hello.", metadata={"vip": True, "tags": [1]})])


def test_candidates_are_read_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"id": "a", "text": "One.", "metadata": {"tag": 1}}\n\n{"text": " Two. "}\n')
    assert read_candidates(path) == [Candidate("a", "One.", {"tag": 1}), Candidate.of("Two.")]


def test_metadata_nests_as_deep_as_every_answer_can_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    deep = '{"a":' * 50 + "[" * 50 + "1" + "]" * 50 + "}" * 50
    path.write_text(f'{{"text": "One.", "metadata": {deep}}}')
    assert len(read_candidates(path)) == 1
    path.write_text(f'{{"text": "One.", "metadata": {{"a": {deep}}}}}')
    with pytest.raises(DataError, match=r'"metadata".*limit of 100 levels'):
        read_candidates(path)


@pytest.mark.parametrize(
    "line", ['{"id": "a"}', '{"text": " "}', '{"text": "x", "metadata": []}', "[]"]
)
def test_a_line_that_is_no_candidate_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"text": "One."}\n' + line)
    with pytest.raises(DataError, match=r"replies\.jsonl.*2"):
        read_candidates(path)


def test_two_candidates_of_one_id_are_told_with_the_name_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"id": "a", "text": "One."}\n' * 2)
    assert len(read_candidates(path)) == 2
    path.write_text('{"id": "a", "text": "One."}\n{"id": "a", "text": "Two."}\n')
    with pytest.raises(DataError, match=r"replies\.jsonl: 'a' is the id of candidates 0 and 1"):
        read_candidates(path)
