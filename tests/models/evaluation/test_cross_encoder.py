from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
)

from tests.models.evaluation.conftest import small_gpt2
from turnwise.models.errors import ModelError
from turnwise.models.evaluation.cross_encoder import CrossEncoderScorer

CONTEXT = ["bread rain", "train music", "garden"]
CANDIDATES = ["letter winter", "river", "letter winter"]


def classifier(folder: Path, tokenizer: PreTrainedTokenizerFast, classes: int) -> Path:
    """A random BERT that reads pairs."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=32, num_labels=classes,
        initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def naive(folder: Path, text: tuple[str, ...]) -> torch.Tensor:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    kind = GPT2ForSequenceClassification if len(text) == 1 else BertForSequenceClassification
    with torch.inference_mode():
        model = kind.from_pretrained(folder).eval()
        return model(**tokenizer(*text, return_tensors="pt")).logits[0]


def test_a_classifier_with_one_output_reads_the_history_and_the_candidate(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = classifier(tmp_path, pair_tokenizer, 1)
    scores = CrossEncoderScorer(folder, device="cpu").scores(CONTEXT, CANDIDATES)
    expected = [naive(folder, (" ".join(CONTEXT), text)).item() for text in CANDIDATES]
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)
    assert scores[0] == pytest.approx(scores[2], abs=1e-5)
    assert scores[0] != pytest.approx(scores[1], abs=1e-2)


def test_of_two_classes_the_second_counts_against_the_first(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = classifier(tmp_path, pair_tokenizer, 2)
    scores = CrossEncoderScorer(folder, device="cpu").scores(CONTEXT, CANDIDATES[:1])
    no, yes = naive(folder, (" ".join(CONTEXT), CANDIDATES[0])).tolist()
    assert scores.tolist() == pytest.approx([yes - no], abs=1e-5)


def test_weights_of_half_precision_are_computed_with_in_float32(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = classifier(tmp_path, pair_tokenizer, 1)
    stored = BertForSequenceClassification.from_pretrained(folder).to(torch.bfloat16)
    stored.save_pretrained(folder)
    half = CrossEncoderScorer(folder, device="cpu").scores(CONTEXT, CANDIDATES)
    stored.float().save_pretrained(folder)
    whole = CrossEncoderScorer(folder, device="cpu").scores(CONTEXT, CANDIDATES)
    assert half.tolist() == pytest.approx(whole.tolist(), abs=1e-5)  # bfloat16 is off by 1e-3


def test_a_classifier_of_more_classes_is_rejected(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(ModelError, match="has 3 classes, not two"):
        CrossEncoderScorer(classifier(tmp_path, pair_tokenizer, 3), device="cpu")


def test_an_encoder_whose_classifier_would_be_random_is_rejected(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = classifier(tmp_path, pair_tokenizer, 1)
    BertModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(ModelError, match=r"cross-encoder '.*' has no trained classifier"):
        CrossEncoderScorer(folder, device="cpu")


def test_a_language_model_reads_an_end_after_every_utterance(
    tmp_path: Path, word_tokenizer: PreTrainedTokenizerFast
) -> None:
    config = small_gpt2(word_tokenizer, 32, num_labels=1, pad_token_id=0)
    GPT2ForSequenceClassification(config).save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path)
    scores = CrossEncoderScorer(tmp_path, device="cpu").scores(CONTEXT, CANDIDATES)
    texts = ["<eos>".join([*CONTEXT, candidate]) for candidate in CANDIDATES]
    expected = [naive(tmp_path, (text,)).item() for text in texts]
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)


def test_an_input_that_is_too_long_loses_its_start(
    tmp_path: Path, pair_tokenizer: PreTrainedTokenizerFast
) -> None:
    scorer = CrossEncoderScorer(classifier(tmp_path, pair_tokenizer, 1), device="cpu")
    end = ["rain " * 40]
    one, other = (scorer.scores([start, *end], ["river"]) for start in ("bread", "train"))
    assert one.tolist() == pytest.approx(other.tolist(), abs=1e-6)
    pairs = [scorer.pair(context, "river") for context in (CONTEXT, end)]
    assert scorer.too_long(pairs) == [1]


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cross-encoder '.*nowhere' cannot be loaded"):
        CrossEncoderScorer(tmp_path / "nowhere")
