import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.models.conftest import Encoders
from turnwise.models.encoder.long_texts import SHARE_OF_END, cut_middle
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText

LONG = " ".join(f"word {number}" for number in range(400))
SAID = RoleText(LONG, Role.SECOND, Relation.OTHER)


@given(st.integers(1, 300), st.integers(16, 256))
def test_both_ends_are_kept_up_to_the_limit(count: int, limit: int) -> None:
    words = [f"w{number}" for number in range(count)]
    text = " ".join(words)
    spans = [match.span() for match in re.finditer(r"\w+", text)]
    kept = cut_middle(text, spans, limit).split()
    if len(words) <= limit:
        assert kept == words
    else:
        end = round(limit * SHARE_OF_END)
        beginning = len(kept) - end
        assert limit - 8 <= len(kept) <= limit
        assert kept == [*words[:beginning], *words[-end:]]
        assert beginning >= 4  # the prefix and the special piece before it


@pytest.mark.parametrize("kind", [EncoderKind.TRIPLE, EncoderKind.SINGLE])
def test_an_encoder_reads_both_ends_of_an_utterance(
    tiny_encoder: Encoders, kind: EncoderKind
) -> None:
    encoder = tiny_encoder(kind)
    whole = encoder.tokenize([encoder.prefixed(SAID)])[0]
    other_end = SAID._replace(text=f"{LONG} Is that all?")
    other_middle = SAID._replace(text=LONG.replace("word 200", "sword 200"))
    as_candidate = RoleText(LONG, Role.AFTER)
    tokens = encoder.tokenize([SAID, other_end, other_middle, as_candidate])
    assert len(whole) - 8 <= len(tokens[0]) <= len(whole)
    assert tokens[0][:8] == whole[:8]
    assert tokens[0] != tokens[1]
    assert tokens[0] == tokens[2]
    assert tokens[3] == encoder.tokenize([encoder.prefixed(as_candidate)])[0]
    vectors = encoder.encode_in_roles([SAID, other_end, as_candidate])
    assert vectors[1] != pytest.approx(vectors[0], abs=1e-4)
    assert vectors[2] == pytest.approx(encoder.forward([tokens[3]])[0], abs=1e-5)


def test_a_text_is_too_long_if_the_model_does_not_read_all_of_it(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    assert encoder.is_too_long(SAID)
    assert not encoder.is_too_long(RoleText("a " * 100, Role.SECOND, Relation.OTHER))


def test_two_threads_may_read_texts_with_one_tokenizer(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    whole = encoder.tokenize([SAID])
    with ThreadPoolExecutor(1) as other:
        checked = other.submit(lambda: [encoder.is_too_long(SAID) for _ in range(50)])
        read = [encoder.tokenize([SAID]) for _ in range(50)]
    assert all(checked.result())
    assert all(each == whole for each in read)
