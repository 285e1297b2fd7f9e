"""What the pairwise model learns beside its encoder."""

import torch
from torch import Tensor, nn
from torch.nn import functional

PADDING_DEVIATION = 0.02


class Projectors(nn.Module):
    """From embeddings to a context's and a response's place in one space.

    A context shorter than k utterances is filled up at its beginning: each of the k places has
    a learned vector that stands for "nobody had spoken yet".

    Args:
        embedding: Length h of an utterance's embedding.
        projection: Length of what comes out.
        context_length: Utterances k of a context.
    """

    def __init__(self, embedding: int, projection: int, context_length: int) -> None:
        super().__init__()
        self.padding = nn.Parameter(PADDING_DEVIATION * torch.randn(context_length, embedding))
        self.context = _projector(context_length * embedding, embedding, projection)
        self.response = _projector(embedding, embedding, projection)
        self.projection = projection

    def contexts(self, embeddings: Tensor, missing: Tensor) -> Tensor:
        """Project contexts.

        Args:
            embeddings: (n, k, h), the newest utterance last.
            missing: (n, k) bool, where there was no utterance yet.

        Returns:
            (n, projection) unit rows.
        """
        filled = torch.where(missing[..., None], self.padding, embeddings)
        return functional.normalize(self.context(filled.flatten(1)), dim=-1)

    def responses(self, embeddings: Tensor) -> Tensor:
        """Project (n, h) embeddings of responses to (n, projection) unit rows."""
        return functional.normalize(self.response(embeddings), dim=-1)

    @property
    def sizes(self) -> dict[str, int]:
        """The arguments that make a module of this shape."""
        context_length, embedding = self.padding.shape
        return {
            "embedding": embedding,
            "projection": self.projection,
            "context_length": context_length,
        }


def _projector(given: int, hidden: int, projection: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(given, hidden), nn.ReLU(), nn.Linear(hidden, projection))
