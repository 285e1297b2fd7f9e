"""Each formula of the network against a transcription into loops in float64."""

import math
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import nn

from turnwise.models.arrays import Float64
from turnwise.models.rerankers.ioi.network import (
    InteractionNetwork,
    Matching,
    Objective,
    Pairs,
    Sizes,
    final_score,
    matching_loss,
    zero_padded,
)

SIZES = Sizes(vocabulary=40, dimension=6, blocks=3, words=20, turns=4)


def weights(module: nn.Module) -> dict[str, Float64]:
    return {name: value.double().numpy() for name, value in module.state_dict().items()}


Module = TypeVar("Module", bound=nn.Module)


def shaken(module: Module) -> Module:
    """Move weights off values, such as 1 or 0, that would hide what they do."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        if isinstance(module, InteractionNetwork):
            module.embedding.weight[0] = 0
    return module.eval()


def relu(x: Float64) -> Float64:
    return np.maximum(x, 0)


def sigmoid(x: Float64) -> Float64:
    return 1 / (1 + np.exp(-x))


def layer_norm(x: Float64, w: dict[str, Float64], name: str) -> Float64:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x: Float64, w: dict[str, Float64], name: str) -> Float64:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", np.zeros(1))


def attend(query: Float64, key: Float64, w: dict[str, Float64], name: str) -> Float64:
    rows = []
    diagonal = np.diag(w[f"{name}diagonal"])
    for q in query:
        asked = relu(linear(q, w, f"{name}project"))
        logits = np.array(
            [asked @ diagonal @ relu(linear(k, w, f"{name}project")) for k in key]
        ) / math.sqrt(len(q))
        share = np.exp(logits) / np.exp(logits).sum()
        read = layer_norm(q + share @ key, w, f"{name}read_norm")
        fed = linear(relu(linear(read, w, f"{name}feed.0")), w, f"{name}feed.2")
        rows.append(layer_norm(read + fed, w, f"{name}feed_norm"))
    return np.stack(rows)


def compress(
    reps: tuple[Float64, Float64, Float64],
    initial: Float64 | None,
    w: dict[str, Float64],
    name: str,
    compressed: tuple[str, ...],
) -> Float64:
    given, to_itself, crossed = reps
    of = {"given": given, "self": to_itself, "cross": crossed, "product": given * crossed}
    features = np.concatenate([of[each] for each in compressed], axis=-1)
    outcome = given + relu(linear(features, w, f"{name}compress"))
    return layer_norm(outcome if initial is None else outcome + initial, w, f"{name}norm")


def convolve_and_pool(x: Float64, kernel: Float64, bias: Float64) -> Float64:
    _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    out = np.empty((len(kernel), height, width))
    for i in range(height):
        for j in range(width):
            window = padded[:, i : i + 3, j : j + 3]
            out[:, i, j] = relu((kernel * window).sum((1, 2, 3)) + bias)
    rows = [out[:, i : i + 3].max(1) for i in range(0, height, 3)]
    return np.stack([np.stack(rows, 1)[:, :, j : j + 3].max(2) for j in range(0, width, 3)], axis=2)


def matching_vector(matrices: Float64, w: dict[str, Float64], name: str, words: int) -> Float64:
    full = np.zeros((len(matrices), words, words))
    full[:, : matrices.shape[1], : matrices.shape[2]] = matrices
    hidden = convolve_and_pool(full, w[f"{name}first.weight"], w[f"{name}first.bias"])
    hidden = convolve_and_pool(hidden, w[f"{name}second.weight"], w[f"{name}second.bias"])
    return np.tanh(linear(hidden.reshape(-1), w, f"{name}dense"))


def gru(inputs: list[Float64], w: dict[str, Float64], name: str) -> Float64:
    hidden = np.zeros_like(inputs[0])
    for x in inputs:
        given = w[f"{name}weight_ih_l0"] @ x + w[f"{name}bias_ih_l0"]
        kept = w[f"{name}weight_hh_l0"] @ hidden + w[f"{name}bias_hh_l0"]
        (gr, gz, gn) = np.split(given, 3)
        (kr, kz, kn) = np.split(kept, 3)
        reset = sigmoid(gr + kr)
        update = sigmoid(gz + kz)
        hidden = (1 - update) * np.tanh(gn + reset * kn) + update * hidden
    return hidden


def naive_logits(
    network: InteractionNetwork, context: list[list[int]], response: list[int]
) -> Float64:
    """The (L,) scores of one example, utterance by utterance, without any padding."""
    w = weights(network)
    sizes = network.sizes
    r0 = w["embedding.weight"][response]
    vectors: list[list[Float64]] = [[] for _ in range(sizes.blocks)]
    for words in context:
        u0 = w["embedding.weight"][words]
        u = u0
        r = r0
        for place in range(sizes.blocks):
            name = f"blocks.{place}."
            u_self = attend(u, u, w, f"{name}utterance.to_itself.")
            r_self = attend(r, r, w, f"{name}response.to_itself.")
            u_cross = attend(u, r, w, f"{name}utterance.crossed.")
            r_cross = attend(r, u, w, f"{name}response.crossed.")
            scale = math.sqrt(sizes.dimension)
            both = {1: (u, r), 2: (u_self, r_self), 3: (u_cross, r_cross)}
            matrices = np.stack([both[m][0] @ both[m][1].T / scale for m in sizes.matrices])
            vectors[place].append(matching_vector(matrices, w, f"{name}matching.", sizes.words))
            if place + 1 < sizes.blocks:
                start = (u0, r0) if place else (None, None)
                kept = sizes.compressed
                of_u = (u, u_self, u_cross)
                of_r = (r, r_self, r_cross)
                u = compress(of_u, start[0], w, f"{name}utterance.compression.", kept)
                r = compress(of_r, start[1], w, f"{name}response.compression.", kept)
    read = [gru(of_block, w, f"blocks.{k}.reader.") for k, of_block in enumerate(vectors)]
    scores = [linear(hidden, w, f"blocks.{k}.scorer") for k, hidden in enumerate(read)]
    return np.concatenate(scores)


def laid_out(texts: list[list[int]], width: int) -> torch.Tensor:
    return torch.tensor([text + [0] * (width - len(text)) for text in texts])


def logits(
    network: InteractionNetwork, context: list[list[int]], response: list[int], width: int
) -> Float64:
    places = torch.arange(len(context))
    pairs = Pairs(
        laid_out(context, width), laid_out([response], width), places, torch.zeros_like(places)
    )
    with torch.inference_mode():
        scored = network.score(network.match(pairs), torch.tensor([len(context)]))
    return scored[0].double().numpy()


CONTEXT = [[3, 7, 9, 4, 4], [11], [30, 2, 5]]
RESPONSE = [8, 3, 39, 6]


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"matrices": (2,)},
        {"matrices": (1, 3)},
        {"compressed": ("product", "self")},
        {"compressed": ("given", "cross")},
    ],
)
def test_the_network_is_its_formulas(part: dict[str, Any]) -> None:
    torch.manual_seed(0)
    sizes = Sizes(vocabulary=40, dimension=6, blocks=3, words=20, turns=4, **part)
    network = shaken(InteractionNetwork(sizes))
    wanted = naive_logits(network, CONTEXT, RESPONSE)
    assert np.ptp(wanted) > 1e-3
    assert np.allclose(logits(network, CONTEXT, RESPONSE, width=5), wanted, atol=1e-4)


@pytest.mark.parametrize("width", [6, 20])
def test_padding_changes_nothing(width: int) -> None:
    torch.manual_seed(0)
    network = shaken(InteractionNetwork(SIZES))
    close = logits(network, CONTEXT, RESPONSE, width=5)
    assert np.allclose(logits(network, CONTEXT, RESPONSE, width), close, atol=1e-5)


@pytest.mark.parametrize(
    ("side", "words"), [(1, 9), (4, 9), (9, 9), (4, 30), (5, 30), (17, 30), (12, 50), (50, 50)]
)
def test_the_corner_is_what_the_full_matrix_gives(side: int, words: int) -> None:
    torch.manual_seed(0)
    matching = shaken(Matching(matrices=3, words=words, dimension=6, dropout=0.2))
    matrices = torch.randn(
        3, 3, side, max(1, side - 3), generator=torch.Generator().manual_seed(side)
    )
    with torch.inference_mode():
        whole = matching.convolve(zero_padded(matrices, words))
        assert torch.allclose(matching.features(matrices), whole, atol=1e-5)


def test_losses_are_their_equations() -> None:
    raw = np.array([[0.3, -1.2, 2.0], [1.5, 0.1, -0.4]])
    labels = np.array([1.0, 0.0])

    def entropy(p: float, y: float) -> float:
        return -(y * math.log(p) + (1 - y) * math.log(1 - p))

    pairs = list(zip(raw, labels, strict=True))
    wanted = {
        "global": np.mean([entropy(float(sigmoid(z.sum())), y) for z, y in pairs]),
        "local": np.mean([sum(entropy(float(sigmoid(z)), y) for z in row) for row, y in pairs]),
    }
    objectives: tuple[Objective, Objective] = ("global", "local")
    for objective in objectives:
        ours = matching_loss(torch.tensor(raw), torch.tensor(labels), objective)
        assert ours.item() == pytest.approx(wanted[objective])


def test_the_final_score_adds_up_the_blocks() -> None:
    raw = torch.tensor([[0.3, -1.2, 2.0]])
    assert final_score(raw, "local").item() == pytest.approx(sigmoid(raw.numpy()).sum())
    assert final_score(raw, "global").item() == pytest.approx(1.1)
