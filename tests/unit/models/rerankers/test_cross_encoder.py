from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder as Reference
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
)

from tests.support.rerankers import save_tiny_classifier, save_tiny_cross_encoder
from tests.unit.models.conftest import Folder, small_gpt2
from turnwise.models.data import Utterance
from turnwise.models.errors import ModelError
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.roles import EncoderKind

CONTEXT = ["bread rain", "train music", "garden"]
SAID = [Utterance("user", "Hi [E]"), Utterance("bot", "Hello"), Utterance("user", "Where?")]
CANDIDATES = ["letter winter", "river", "letter winter"]


def classifier(folder: Path, tokenizer: PreTrainedTokenizerFast, classes: int) -> Path:
    save_tiny_classifier(folder, tokenizer, classes, longest=32)
    return folder


def naive(folder: Path, text: tuple[str, ...]) -> torch.Tensor:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    kind = GPT2ForSequenceClassification if len(text) == 1 else BertForSequenceClassification
    with torch.inference_mode():
        model = kind.from_pretrained(folder).eval()
        return model(**tokenizer(*text, return_tensors="pt")).logits[0]


def test_a_classifier_with_one_output_reads_the_end_of_the_context_and_the_candidate(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = classifier(tmp_path, pair_tokenizer, 1)
    scores = CrossEncoder(folder, device="cpu").scores(["winter", *CONTEXT], CANDIDATES)
    expected = [naive(folder, (" ".join(CONTEXT), text)).item() for text in CANDIDATES]
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)
    assert scores[0] == pytest.approx(scores[2], abs=1e-5)
    assert scores[0] != pytest.approx(scores[1], abs=1e-2)


def test_of_two_classes_the_second_counts_against_the_first(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = classifier(tmp_path, pair_tokenizer, 2)
    scores = CrossEncoder(folder, device="cpu").scores(CONTEXT, CANDIDATES[:1])
    no, yes = naive(folder, (" ".join(CONTEXT), CANDIDATES[0])).tolist()
    assert scores.tolist() == pytest.approx([yes - no], abs=1e-5)


def test_a_classifier_of_more_classes_is_rejected(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(ModelError, match="has 3 classes, not two"):
        CrossEncoder(classifier(tmp_path, pair_tokenizer, 3), device="cpu")


def test_an_encoder_whose_classifier_would_be_random_is_rejected(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = classifier(tmp_path, pair_tokenizer, 1)
    BertModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(ModelError, match=r"cross-encoder '.*' has no trained classifier"):
        CrossEncoder(folder, device="cpu")


def test_a_language_model_reads_an_end_after_every_utterance(
    tmp_path: Path, word_tokenizer: PreTrainedTokenizerFast
) -> None:
    config = small_gpt2(word_tokenizer, 32, num_labels=1, pad_token_id=0)
    GPT2ForSequenceClassification(config).save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path)
    model = CrossEncoder(tmp_path, device="cpu")
    texts = ["<eos>".join([*CONTEXT, candidate]) for candidate in CANDIDATES]
    expected = [naive(tmp_path, (text,)).item() for text in texts]
    assert model.scores(CONTEXT, CANDIDATES).tolist() == pytest.approx(expected, abs=1e-5)


def test_an_input_that_is_too_long_loses_its_start(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    scorer = CrossEncoder(classifier(tmp_path, pair_tokenizer, 1), device="cpu")
    end = ["rain " * 40]
    one, other = (scorer.scores([start, *end], ["river"]) for start in ("bread", "train"))
    assert one.tolist() == pytest.approx(other.tolist(), abs=1e-6)
    pairs = [scorer.pair(context, "river") for context in (CONTEXT, end)]
    assert scorer.too_long(pairs) == [1]
    assert scorer.too_long([]) == []


PAIRS = [
    ("Hello there", "Hi!"),
    ("Where is it? It was due.", "Let me look into it, " * 20),
    ("Where", "Here"),
]


@pytest.mark.train
def test_served_scores_are_those_of_sentence_transformers(
    tmp_path: Path, tiny_encoder_folder: Folder, onnx_cache: Path
) -> None:
    """Of two classes: the graph takes the difference of their scores."""
    single = tiny_encoder_folder(EncoderKind.SINGLE)
    folder = save_tiny_cross_encoder(tmp_path / "cross", single, classes=2)
    model = CrossEncoder.for_serving(folder, device="cpu", cache=onnx_cache)
    assert model.runtime == "onnxruntime float32 on cpu"
    wanted = Reference(str(folder), device="cpu").predict(PAIRS, activation_fn=torch.nn.Identity())
    wanted = wanted[:, 1] - wanted[:, 0]
    tokens = model.tokenize(PAIRS)
    assert model.forward(tokens)[:, 0] == pytest.approx(wanted, abs=1e-4)
    assert [len(pair) == 128 for pair in tokens] == [False, True, False]
    in_torch = CrossEncoder(folder, device="cpu")
    assert in_torch.forward(tokens)[:, 0] == pytest.approx(wanted, abs=1e-4)


def test_a_pair_that_is_too_long_keeps_the_end_of_the_context_and_the_start_of_the_candidate(
    cross_encoder_folder: Path,
) -> None:
    model = CrossEncoder(cross_encoder_folder, device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(cross_encoder_folder)
    room = 128 - 3  # [CLS] and two [SEP]

    def read(context: str, candidate: str) -> str:
        (tokens,) = model.tokenize([(context, candidate)])
        assert len(tokens) == len(tokens.types) == 128
        return str(tokenizer.decode(tokens.ids)).replace(" ", "")

    long = "x " * 200
    start = "a " * 9
    end = "z " * 9
    assert read(long + end, start) == f"[CLS]{'x' * (room - 18)}{'z' * 9}[SEP]{'a' * 9}[SEP]"
    assert read(end, start + long) == f"[CLS]{'z' * 9}[SEP]{'a' * 9}{'x' * (room - 18)}[SEP]"
    both = read(start + long + end, start + long + end)
    assert both == f"[CLS]{'x' * 53}{'z' * 9}[SEP]{'a' * 9}{'x' * 54}[SEP]"


def test_a_vocabulary_with_speakers_gets_them_before_every_utterance(
    tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    folder = save_tiny_cross_encoder(tmp_path / "cross", tiny_encoder_folder(EncoderKind.TRIPLE))
    model = CrossEncoder(folder, device="cpu")
    context = model.read_context(SAID, "bot")
    assert context == ["[O] Hi [ E ]", "[E] Hello", "[O] Where?"]
    assert model.pair(context, "[O] Here") == ("[O] Hi [ E ] [E] Hello [O] Where?", "[ O ] Here")
