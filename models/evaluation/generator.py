"""Candidates sampled from a causal language model, as CCL's short-term planning takes them."""

from typing import Any

import torch
from transformers import DynamicCache

from turnwise.models.data import Dialogue
from turnwise.models.errors import ModelError
from turnwise.models.evaluation.causal import load_causal, max_tokens
from turnwise.models.evaluation.short_term_problems import CANDIDATES, Propose

TOP_P = 0.8
TEMPERATURE = 0.8
NEW_TOKENS = 40
INSTRUCTION = "Let us talk as two people do, each in one or two short sentences at a time."


def sampled_replies(
    name: str, count: int = CANDIDATES, *, device: str | None = None, seed: int = 0
) -> Propose:
    """Propose replies by nucleus sampling from a causal language model.

    A model with a chat template reads the context as its chat, in which it is who replies. For
    another the context's utterances are joined by the end-of-sequence token, the form in which
    dialogue models such as DialoGPT are trained. A context too long for the model loses its start.
    Samples with no text are dropped, equal ones are kept.

    Args:
        name: A folder or a hub name that transformers loads.
        count: Samples a context.
        device: A torch device; without one a GPU where there is one, else the CPU.
        seed: The same context gets the same samples, whatever was sampled before.

    Raises:
        ModelError: Nothing that can be loaded stands there.
    """
    tokenizer, model = load_causal(name, device)
    if tokenizer.eos_token_id is None:
        raise ModelError(f"language model '{name}' has no end-of-sequence token")

    def propose(dialogue: Dialogue, length: int) -> list[str]:
        prompt = _prompt(tokenizer, dialogue, length, model)
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(seed)
            copies = prompt.expand(count, -1)
            output = model.generate(
                copies,
                attention_mask=torch.ones_like(copies),
                past_key_values=_read_once(model, prompt, count),
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


def _read_once(model: Any, prompt: torch.Tensor, count: int) -> DynamicCache:  # noqa: ANN401
    # `generate` would read the prompt once a sample, which takes longer than to sample.
    cache = DynamicCache(config=model.config)
    if prompt.shape[1] > 1:
        model(prompt[:, :-1], past_key_values=cache)
        cache.batch_repeat_interleave(count)
    return cache


def _prompt(tokenizer: Any, dialogue: Dialogue, length: int, model: Any) -> torch.Tensor:  # noqa: ANN401
    if tokenizer.chat_template is not None:
        tokens = tokenizer.apply_chat_template(
            _chat(dialogue, length), add_generation_prompt=True, return_dict=False
        )
    else:
        tokens = _turns(tokenizer, dialogue, length)
    longest = max_tokens(model) - NEW_TOKENS
    return torch.tensor([tokens[-longest:]], device=model.device)


def _chat(dialogue: Dialogue, length: int) -> list[dict[str, str]]:
    # A template may want user and assistant to alternate, and the user to begin.
    replies = dialogue.utterances[length].speaker
    chat = [{"role": "user", "content": INSTRUCTION}]
    for said in dialogue.utterances[:length]:
        role = "assistant" if said.speaker == replies else "user"
        if chat[-1]["role"] == role:
            chat[-1]["content"] += f"\n{said.text}"
        else:
            chat.append({"role": role, "content": said.text})
    return chat


def _turns(tokenizer: Any, dialogue: Dialogue, length: int) -> list[int]:  # noqa: ANN401
    tokens: list[int] = []
    for said in dialogue.utterances[:length]:
        tokens += tokenizer(said.text, add_special_tokens=False)["input_ids"]
        tokens.append(tokenizer.eos_token_id)
    return tokens
