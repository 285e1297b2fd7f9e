"""Causal language models: sampled candidates, and the likelihood of answers."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from turnwise.models.arrays import Float64
from turnwise.models.card import model_name
from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import batches, default_device
from turnwise.models.errors import ModelError
from turnwise.models.evaluation.short_term import CANDIDATES
from turnwise.models.evaluation.split import Context, Propose
from turnwise.models.evaluation.truncation import warn_of_cut
from turnwise.models.model_files import (
    UNREADABLE,
    check_weights,
    explain_unreadable,
    hub_answers,
)

Language = Literal["en", "de"]

DEFAULT_TOKEN_LIMIT = 1024
"""Tokens that a model reads if it states no limit of its own."""
TOP_P = 0.8
TEMPERATURE = 0.8
NEW_TOKENS = 40
INSTRUCTION = "Let us talk as two people do, each in one or two short sentences at a time."
LIKELIHOOD_TOKENS = 4096
"""Tokens of the largest padded batch of likelihoods."""

PromptStyle = Literal["rephrase", "list"]
"""`rephrase` asks for the last turn in other words. `list` lists the choices, and asks for the one
that is most similar to it, as GiCCS does."""

# The texts before the dialogue, and between it and the answer.
_PROMPTS: dict[Language, tuple[str, str]] = {
    "en": ("Two people are talking.\n", "In other words, {speaker} says:"),
    "de": ("Zwei Personen unterhalten sich.\n", "Mit anderen Worten sagt {speaker}:"),
}
# The texts before and after the listed choices.
_QUESTIONS: dict[Language, tuple[str, str]] = {
    "en": (
        "Which sentence is most similar to the last one of {speaker}?\n",
        "The most similar is:",
    ),
    "de": ("Welcher Satz ist dem letzten von {speaker} am ähnlichsten?\n", "Am ähnlichsten ist:"),
}


def load_causal(name: str) -> tuple[Any, Any]:
    """Return the tokenizer and the language model of a folder or a hub name, on a GPU if any.

    Raises:
        ModelError: The model cannot be loaded.
    """
    check_weights(name, name)
    try:
        source = {
            "local_files_only": Path(name).is_dir() or not hub_answers(),
            "trust_remote_code": False,  # otherwise it asks at the terminal
        }
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        loading: Any = partial(AutoModelForCausalLM.from_pretrained, output_loading_info=True)
        model, loaded = loading(name, use_safetensors=True, **source)
    except UNREADABLE as error:
        why = explain_unreadable(error)
        raise ModelError(f"language model '{name}' cannot be loaded: {why}") from error
    if missing := sorted(loaded["missing_keys"]):
        raise ModelError(f"language model '{name}' has no trained {', '.join(missing[:3])}")
    return tokenizer, model.to(default_device(None)).eval()


def sampled_replies(name: str) -> Propose:
    """Propose replies by nucleus sampling from a causal language model.

    A model with a chat template reads the context as its chat, in which it replies. Any other reads
    the utterances joined by the end-of-sequence token, as dialogue models such as DialoGPT are
    trained. A context that is too long for the model loses its start. Samples without text are
    dropped, equal ones are kept. The same context always gets the same samples.

    Args:
        name: A folder or a hub name that transformers loads.

    Raises:
        ModelError: The model cannot be loaded.
    """
    tokenizer, model = load_causal(name)
    if tokenizer.eos_token_id is None:
        raise ModelError(f"language model '{name}' has no end-of-sequence token")

    def propose(dialogue: Dialogue, length: int) -> list[str]:
        prompt = _tokenize_context(tokenizer, dialogue, length, model)
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(0)
            copies = prompt.expand(CANDIDATES, -1)
            output = model.generate(
                copies,
                attention_mask=torch.ones_like(copies),
                past_key_values=_cache_prompt(model, prompt),
                do_sample=True,
                top_k=0,
                top_p=TOP_P,
                temperature=TEMPERATURE,
                max_new_tokens=NEW_TOKENS,
                pad_token_id=tokenizer.eos_token_id,
            )
        new = tokenizer.batch_decode(output[:, prompt.shape[1] :], skip_special_tokens=True)
        return [" ".join(text.split()) for text in new if text.strip()]

    return propose


def _cache_prompt(model: Any, prompt: torch.Tensor) -> DynamicCache:  # noqa: ANN401
    # Without this cache `generate` reads the prompt for each sample, which takes most of the time.
    cache = DynamicCache(config=model.config)
    if prompt.shape[1] > 1:
        model(prompt[:, :-1], past_key_values=cache)
        cache.batch_repeat_interleave(CANDIDATES)
    return cache


def _tokenize_context(tokenizer: Any, dialogue: Dialogue, length: int, model: Any) -> torch.Tensor:  # noqa: ANN401
    if tokenizer.chat_template is not None:
        tokens = tokenizer.apply_chat_template(
            _write_chat(dialogue, length), add_generation_prompt=True, return_dict=False
        )
    else:
        tokens = []
        for said in dialogue.utterances[:length]:
            tokens += tokenizer(said.text, add_special_tokens=False)["input_ids"]
            tokens.append(tokenizer.eos_token_id)
    longest = _token_limit(model) - NEW_TOKENS
    return torch.tensor([tokens[-longest:]], device=model.device)


def _write_chat(dialogue: Dialogue, length: int) -> list[dict[str, str]]:
    # Some templates require that user and assistant alternate and that the user begins.
    responder = dialogue.utterances[length].speaker
    chat = [{"role": "user", "content": INSTRUCTION}]
    for said in dialogue.utterances[:length]:
        role = "assistant" if said.speaker == responder else "user"
        if chat[-1]["role"] == role:
            chat[-1]["content"] += f"\n{said.text}"
        else:
            chat.append({"role": role, "content": said.text})
    return chat


class LanguageModel:
    """A causal language model that transformers loads.

    Attributes:
        name: The folder's name or the hub name, as `model_name` returns it.
    """

    def __init__(self, name: str | Path) -> None:
        """Load a folder or a hub name.

        Raises:
            ModelError: The model cannot be loaded.
        """
        self.name = model_name(name)
        self._tokenizer, self._model = load_causal(str(name))
        self._token_limit = _token_limit(self._model)

    def log_likelihoods(
        self, prompts: Sequence[str], answers: Sequence[str]
    ) -> tuple[Float64, Float64]:
        """Return the log-probability (n,) of each answer after its prompt, and its tokens (n,).

        A space separates the two. If the tokens of both together differ from the prompt's own
        tokens, the difference counts as part of the answer. A prompt that is too long loses its
        start.
        """
        tokens: list[list[int]] = []
        lengths: list[int] = []
        for prompt, answer in zip(prompts, answers, strict=True):
            both = self._tokenize(f"{prompt} {answer}")
            tokens.append(both[-self._token_limit :])
            lengths.append(len(both) - _count_common(self._tokenize(prompt), both))
        likelihoods = np.empty(len(tokens))
        for indices in batches(list(map(len, tokens)), LIKELIHOOD_TOKENS):
            likelihoods[indices] = self._score_batch(
                [tokens[index] for index in indices], [lengths[index] for index in indices]
            )
        return likelihoods, np.array(lengths, np.float64)

    def warn_of_long(self, prompts: Sequence[str], where: Sequence[str]) -> None:
        """Warn of prompts that fill the model; an answer needs some room as well."""
        lengths = np.array([len(self._tokenize(prompt)) for prompt in prompts])
        warn_of_cut(self.name, np.flatnonzero(lengths >= self._token_limit).tolist(), where)

    def _tokenize(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, verbose=False)["input_ids"]
        return ids

    def _score_batch(self, tokens: list[list[int]], lengths: list[int]) -> Float64:
        """Return the log-probabilities of the last `lengths` tokens, padded on the right."""
        longest = max(map(len, tokens))
        ids = torch.zeros(len(tokens), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        counted = torch.zeros_like(ids)
        for row, (own, length) in enumerate(zip(tokens, lengths, strict=True)):
            end = len(own)
            ids[row, :end] = torch.tensor(own)
            mask[row, :end] = 1
            counted[row, end - min(length, end - 1) : end] = 1
        device = self._model.device
        ids = ids.to(device)
        with torch.inference_mode():
            output = self._model(input_ids=ids, attention_mask=mask.to(device))
        logits = output.logits[:, :-1].float()
        losses = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        kept = losses.double() * counted[:, 1:].to(device)
        likelihoods: Float64 = -kept.sum(dim=1).cpu().numpy()
        return likelihoods


def write_prompt(
    said: Context, language: Language, *, with_context: bool = True, choices: Sequence[str] = ()
) -> str:
    """Return a prompt that a language model continues with the text in other words.

    With choices, it lists these, and is continued with the one that is most similar to the text.
    """
    opening, closing = _PROMPTS[language]
    turns = [*(said.utterances if with_context else ()), said.target]
    distinct = dict.fromkeys(turn.speaker for turn in turns)
    names = {speaker: chr(ord("A") + index) for index, speaker in enumerate(distinct)}
    lines = "".join(f"{names[turn.speaker]}: {turn.text}\n" for turn in turns)
    speaker = names[said.target.speaker]
    if choices:
        question, closing = _QUESTIONS[language]
        lines += question.format(speaker=speaker)
        lines += "".join(f"- {choice}\n" for choice in choices)
    return opening + lines + closing.format(speaker=speaker)


def _count_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common start of two sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))


def _token_limit(model: Any) -> int:  # noqa: ANN401 - of transformers
    """Return the number of tokens that a model reads."""
    return int(getattr(model.config, "max_position_embeddings", DEFAULT_TOKEN_LIMIT))
