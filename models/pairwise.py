"""DSE-P: a pairwise context-response model over a sentence encoder.

The embeddings of the last k utterances are concatenated and projected, the response's embedding
is projected by itself, and the score is the cosine of the two. Each utterance is encoded by
itself, so a server that keeps the embeddings encodes only the newest utterance.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models.arrays import Float32
from turnwise.models.card import model_name
from turnwise.models.encoder.torch import Precision, UtteranceEncoder, digest
from turnwise.models.errors import ModelError
from turnwise.models.model_files import UNREADABLE
from turnwise.models.network_folder import load_weights, read_sizes
from turnwise.models.roles import Role

ENCODER = "encoder"
PADDING_DEVIATION = 0.02


class Projectors(nn.Module):
    """Projects embeddings of contexts and of responses into one space.

    A context shorter than k utterances is padded at its beginning: each of the k positions has a
    learned vector for "nobody has spoken yet".

    Args:
        embedding: Length h of an utterance's embedding.
        projection: Length of the projected vectors.
        context_length: Utterances k of a context.
    """

    def __init__(self, embedding: int, projection: int, context_length: int) -> None:
        super().__init__()
        self.padding = nn.Parameter(PADDING_DEVIATION * torch.randn(context_length, embedding))
        self.context = _projector(context_length * embedding, embedding, projection)
        self.response = _projector(embedding, embedding, projection)
        self.projection = projection

    def project_contexts(self, embeddings: Tensor, missing: Tensor) -> Tensor:
        """Project contexts.

        Args:
            embeddings: (n, k, h), the newest utterance last.
            missing: (n, k) bool, true where the context has no utterance.

        Returns:
            (n, projection) unit rows.
        """
        filled = torch.where(missing[..., None], self.padding, embeddings)
        return functional.normalize(self.context(filled.flatten(1)), dim=-1)

    def project_responses(self, embeddings: Tensor) -> Tensor:
        """Project (n, h) embeddings of responses to (n, projection) unit rows."""
        return functional.normalize(self.response(embeddings), dim=-1)

    @property
    def sizes(self) -> dict[str, int]:
        """The arguments of the constructor, by name."""
        context_length, embedding = self.padding.shape
        return {
            "embedding": embedding,
            "projection": self.projection,
            "context_length": context_length,
        }


def _projector(given: int, hidden: int, projection: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(given, hidden), nn.ReLU(), nn.Linear(hidden, projection))


class PairwiseModel:
    """A trained context-response model.

    Attributes:
        name: The folder's name, or the name given.
        encoder: Embeds utterances, all in the role of a candidate.
        projectors: The weights that the encoder does not have.
        context_length: Number k of the newest utterances of a context that count.
        dimension: Length of the projected vectors.
    """

    def __init__(
        self, encoder: UtteranceEncoder, projectors: Projectors, name: str = "pairwise"
    ) -> None:
        self.encoder = encoder
        self.projectors = projectors.eval()
        self.name = name
        self.context_length, embedding = projectors.padding.shape
        if embedding != encoder.dimension:
            raise ModelError(
                f"the projectors take embeddings of {embedding}, not of {encoder.dimension}"
            )
        self.dimension = projectors.projection

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str | None = None,
        encoder: UtteranceEncoder | None = None,
        precision: Precision = "float32",
    ) -> Self:
        """Load a trained model.

        Args:
            folder: The model's folder.
            device: Device of the encoder. The projectors, which are small, stay on the CPU.
            encoder: The folder's encoder if it is loaded already, such as for serving.
            precision: Precision of the encoder if it is not loaded yet.

        Raises:
            ModelError: The folder holds no such model.
        """
        folder = Path(folder)
        sizes = read_sizes(folder, "pairwise")
        try:
            projectors = Projectors(**sizes)
        except UNREADABLE as error:
            raise ModelError(f"'{folder}' names sizes that do not fit: {error}") from error
        load_weights(projectors, folder)
        encoder = encoder or UtteranceEncoder(folder / ENCODER, device=device, precision=precision)
        return cls(encoder, projectors, model_name(folder))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of encoder and projectors; equal if vectors compare."""
        return digest(self.encoder.fingerprint, self.projectors.state_dict())

    def embed(self, texts: Sequence[str]) -> Float32:
        """Embed n utterances, (n, h) unit rows: the same vector in a context and as a response."""
        return self.encoder.encode(texts, Role.AFTER)

    def project_context(self, embeddings: Float32) -> Float32:
        """Project one context.

        Args:
            embeddings: (n, h) float32 of its utterances, n ≥ 1, the newest last; k count.

        Returns:
            (dimension,) float32 unit vector.

        Raises:
            ValueError: The context has no utterance.
        """
        vector: Float32 = self._project_contexts([embeddings])[0]
        return vector

    def project_responses(self, embeddings: Float32) -> Float32:
        """Project (n, h) embeddings of responses to (n, dimension) unit rows."""
        with torch.inference_mode():
            projected = self.projectors.project_responses(self._tensor(embeddings))
        rows: Float32 = projected.cpu().numpy()
        return rows

    def encode_contexts(self, contexts: Sequence[Sequence[str]]) -> Float32:
        """Encode n contexts to (n, dimension) unit rows.

        Raises:
            ValueError: A context has no utterance.
        """
        recent = [list(context)[-self.context_length :] for context in contexts]
        embeddings = self.embed([text for texts in recent for text in texts])
        ends = np.cumsum([len(texts) for texts in recent], dtype=np.intp)
        return self._project_contexts(np.split(embeddings, ends[:-1]) if recent else [])

    def encode_responses(self, texts: Sequence[str]) -> Float32:
        """Encode n responses to (n, dimension) unit rows."""
        return self.project_responses(self.embed(texts))

    def _project_contexts(self, contexts: Sequence[Float32]) -> Float32:
        k = self.context_length
        filled = np.zeros((len(contexts), k, self.encoder.dimension), np.float32)
        missing = np.ones((len(contexts), k), np.bool_)
        for row, embeddings in enumerate(contexts):
            recent = embeddings[-k:]
            if not len(recent):
                raise ValueError("a context needs at least one utterance")
            start = k - len(recent)
            filled[row, start:] = recent
            missing[row, start:] = False
        with torch.inference_mode():
            projected = self.projectors.project_contexts(
                self._tensor(filled), self._tensor(missing)
            )
        rows: Float32 = projected.cpu().numpy()
        return rows

    def _tensor(self, values: Float32 | NDArray[np.bool_]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.projectors.padding.device)


def dialogue_heat_map(model: PairwiseModel, texts: Sequence[str]) -> Float32:
    """Return how well each utterance of a dialogue fits after each of its contexts.

    Blocks of high values along the diagonal are stages of the dialogue, in which every utterance
    fits after every other.

    Args:
        model: The model.
        texts: The texts of a dialogue, n ≥ 1.

    Returns:
        (n, n) float32: at [i, j] the cosine of the context that ends with utterance i and
        utterance j as its response.
    """
    embeddings = model.embed(texts)
    ends = [model.project_context(embeddings[: end + 1]) for end in range(len(texts))]
    similarity: Float32 = np.stack(ends) @ model.project_responses(embeddings).T
    return similarity
