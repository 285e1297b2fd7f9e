import torch
from torch import Tensor

from turnwise.models.training.frozen import FrozenEncoder


def test_each_text_is_read_once_and_without_a_gradient() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    read: list[list[int]] = []

    def encode(tokens: list[list[int]]) -> Tensor:
        read.extend(tokens)
        return weight * torch.tensor([[sum(ids), len(ids)] for ids in tokens])

    encoder = FrozenEncoder(encode)
    first = encoder([[3, 4], [5], [3, 4]])
    second = encoder([[5], [6]])
    assert first.tolist() == [[7, 2], [5, 1], [7, 2]]
    assert second.tolist() == [[5, 1], [6, 1]]
    assert not second.requires_grad
    assert read == [[3, 4], [5], [6]]
