"""How likely a causal language model finds each answer to a question."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from turnwise.models.arrays import Float64
from turnwise.models.encoder import batches, model_name
from turnwise.models.evaluation.causal import load_causal, max_tokens
from turnwise.models.evaluation.similarity_files import Said
from turnwise.models.evaluation.truncation import warn_of_cut

Language = Literal["en", "de"]

TOKENS = 4096
"""Largest padded batch."""

# What stands before the dialogue, and between it and the answer.
_PROMPTS: dict[Language, tuple[str, str]] = {
    "en": ("Two people are talking.\n", "In other words, {speaker} says:"),
    "de": ("Zwei Personen unterhalten sich.\n", "Mit anderen Worten sagt {speaker}:"),
}


class LanguageModel:
    """A causal language model that transformers loads.

    Attributes:
        name: The folder's name or the hub name, as `model_name` tells it.
    """

    def __init__(self, name: str | Path, device: str | None = None) -> None:
        """Load a folder or a hub name.

        Args:
            name: Which.
            device: A torch device; without one a GPU where there is one, else the CPU.

        Raises:
            ModelError: Nothing that can be loaded stands there.
        """
        self.name = model_name(name)
        self._tokenizer, self._model = load_causal(str(name), device)
        self._max_tokens = max_tokens(self._model)

    def log_likelihoods(
        self, prompts: Sequence[str], answers: Sequence[str]
    ) -> tuple[Float64, Float64]:
        """Return the log-probability (n,) of each answer after its prompt, and its tokens (n,).

        The answer follows after a space. Where the two tokenise differently together than the
        prompt does alone, what differs counts to the answer. A prompt too long loses its start.
        """
        texts = list(zip(prompts, answers, strict=True))
        tokens = [self._tokens(f"{prompt} {answer}") for prompt, answer in texts]
        known = [_common(self._tokens(p), t) for (p, _), t in zip(texts, tokens, strict=True)]
        lengths = [len(ids) - start for ids, start in zip(tokens, known, strict=True)]
        likelihoods = np.empty(len(texts))
        for places in batches([min(len(ids), self._max_tokens) for ids in tokens], TOKENS):
            chosen = [tokens[place][-self._max_tokens :] for place in places]
            likelihoods[places] = self._batch(chosen, [lengths[place] for place in places])
        return likelihoods, np.array(lengths, np.float64)

    def warn_of_long(self, prompts: Sequence[str], where: Sequence[str]) -> None:
        """Warn of prompts that leave no room in the model; an answer takes some more."""
        over = [n for n, text in enumerate(prompts) if len(self._tokens(text)) >= self._max_tokens]
        warn_of_cut(self.name, over, where)

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, verbose=False)["input_ids"]
        return ids

    def _batch(self, tokens: list[list[int]], lengths: list[int]) -> Float64:
        """Return the log-probabilities of the last `lengths` tokens, padded on the right."""
        longest = max(map(len, tokens))
        ids = torch.zeros(len(tokens), longest, dtype=torch.long)
        mask, counted = torch.zeros_like(ids), torch.zeros_like(ids)
        for place, (own, length) in enumerate(zip(tokens, lengths, strict=True)):
            ids[place, : len(own)] = torch.tensor(own)
            mask[place, : len(own)] = 1
            counted[place, len(own) - min(length, len(own) - 1) : len(own)] = 1
        ids, mask, counted = (x.to(self._model.device) for x in (ids, mask, counted))
        with torch.inference_mode():
            logits = self._model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        losses = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        likelihoods: Float64 = -(losses.double() * counted[:, 1:]).sum(dim=1).cpu().numpy()
        return likelihoods


def prompt(said: Said, language: Language, *, with_context: bool = True) -> str:
    """Return what a language model goes on from, to say the text in other words."""
    opening, closing = _PROMPTS[language]
    turns = [(turn.speaker, turn.text) for turn in said.context] if with_context else []
    turns.append((said.speaker, said.text))
    distinct = dict.fromkeys(speaker for speaker, _ in turns)
    names = {speaker: chr(ord("A") + place) for place, speaker in enumerate(distinct)}
    lines = "".join(f"{names[speaker]}: {text}\n" for speaker, text in turns)
    return opening + lines + closing.format(speaker=names[said.speaker])


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two sequences start with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))
