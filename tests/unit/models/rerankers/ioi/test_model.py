import json
import string
from pathlib import Path

import numpy as np
import pytest
import torch

from turnwise.models.encoder.torch import digest
from turnwise.models.errors import ModelError
from turnwise.models.rerankers.ioi import model as ioi_module
from turnwise.models.rerankers.ioi.model import IoI, match
from turnwise.models.rerankers.ioi.network import final_score

CONTEXT = ["a b c", "d", "e f"]
CANDIDATES = ["g h", "i", "j k l m n o p q r", "b c"]


def test_a_score_does_not_depend_on_the_other_candidates(ioi: IoI) -> None:
    together = ioi.scores(CONTEXT, CANDIDATES)
    assert len(set(together.tolist())) == len(CANDIDATES)
    assert ioi.scores(CONTEXT, []).shape == (0,)
    alone = [ioi.scores(CONTEXT, [text])[0] for text in CANDIDATES]
    assert np.allclose(together, alone, atol=1e-6)
    assert np.allclose(ioi.scores(CONTEXT, CANDIDATES[::-1])[::-1], together, atol=1e-6)


def test_groups_of_pairs_give_the_same_as_all_at_once(
    ioi: IoI, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = ioi.scores(CONTEXT, CANDIDATES)
    monkeypatch.setattr(ioi_module, "PAIR_WORDS", 4)
    assert np.allclose(ioi.scores(CONTEXT, CANDIDATES), together, atol=1e-6)


def test_contexts_of_different_lengths_share_a_batch(ioi: IoI) -> None:
    contexts = [CONTEXT, CONTEXT[-1:], CONTEXT[:2]]
    with torch.inference_mode():
        examples = [(ioi.context_ids(context), ioi.word_ids("g h")) for context in contexts]
        together = final_score(match(ioi.network, examples), "local").numpy()
    alone = [ioi.scores(context, ["g h"])[0] for context in contexts]
    assert np.allclose(together, alone, atol=1e-6)


def test_only_the_newest_utterances_count(ioi: IoI) -> None:
    longer = ["x y", "z", *CONTEXT]
    assert np.array_equal(ioi.scores(longer, CANDIDATES), ioi.scores(CONTEXT, CANDIDATES))


def test_only_the_first_words_of_a_text_count(ioi: IoI) -> None:
    long = "a b c d e f g h i j k l"
    assert np.allclose(ioi.scores(CONTEXT, [long]), ioi.scores(CONTEXT, [long + " m n"]))


def test_an_empty_context_is_refused(ioi: IoI) -> None:
    with pytest.raises(ValueError, match="at least one utterance"):
        ioi.scores([], CANDIDATES)


def test_a_network_comes_back_from_its_folder(ioi: IoI, tmp_path: Path) -> None:
    ioi.save(tmp_path / "mine")
    loaded = IoI.load(tmp_path / "mine", "cpu")
    assert isinstance(loaded, IoI)
    assert loaded.name == "mine"
    assert loaded.fingerprint == ioi.fingerprint
    assert np.array_equal(loaded.scores(CONTEXT, CANDIDATES), ioi.scores(CONTEXT, CANDIDATES))


def test_the_fingerprint_is_that_of_earlier_versions(ioi: IoI) -> None:
    sizes = "vocabulary=28, dimension=8, blocks=2, words=12, turns=3, matrices=(1, 2, 3)"
    seed = f"(Sizes({sizes}, dropout=0.2, objective='local'), {tuple(string.ascii_lowercase)!r})"
    assert ioi.fingerprint == digest(seed, ioi.network.state_dict())


def test_sizes_that_make_no_network_are_refused(ioi: IoI, tmp_path: Path) -> None:
    ioi.save(tmp_path)
    card = json.loads((tmp_path / "reranker.json").read_text())
    card["sizes"]["matrices"] = [4]
    (tmp_path / "reranker.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match=rf"'{tmp_path}' names sizes that do not fit.*\nmatrices"):
        IoI.load(tmp_path, "cpu")


def test_words_that_do_not_fit_the_weights_are_refused(ioi: IoI, tmp_path: Path) -> None:
    ioi.save(tmp_path)
    (tmp_path / "words.json").write_text('["a"]')
    with pytest.raises(ModelError, match=r"words\.json"):
        IoI.load(tmp_path, "cpu")
