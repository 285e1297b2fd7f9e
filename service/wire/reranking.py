"""`/v1/rerank` and `/v2/rerank`: compatible with the clients of Cohere and Jina."""

from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool

from turnwise.service.wire.fields import MAX_CANDIDATES, Count, LongText, Omittable, Value


class _Foreign(Value):
    """A value of another API: fields that Turnwise does not know are ignored."""

    model_config = ConfigDict(extra="ignore")


class Document(_Foreign):
    """A document as an object."""

    text: Annotated[str, Field(max_length=1 << 20)]


class RerankRequest(_Foreign):
    """Documents to order by how well they follow a query."""

    model: str | None = None
    """Ignored: the service has one model for this."""
    query: Annotated[LongText, Field(max_length=1 << 20)]
    documents: list[Annotated[str, Field(max_length=1 << 20)] | Document] = Field(
        min_length=1, max_length=MAX_CANDIDATES
    )
    top_n: Count | None = None
    """Number of documents to return; by default all."""
    return_documents: StrictBool | None = None
    """Whether to return the text of each document; by default no."""

    @property
    def texts(self) -> list[str]:
        """The text of each document."""
        return [one.text if isinstance(one, Document) else one for one in self.documents]


class Relevance(Value):
    """A document and its score."""

    index: int
    """Its place among the documents of the request, from 0."""
    relevance_score: float
    """A cross-encoder gives a probability. Without one it is the encoder's score, a cosine."""
    document: Omittable[Document] = None


class Usage(Value):
    """Some clients need this object."""

    total_tokens: int = 0
    """Always 0: Turnwise does not count tokens."""


class RerankAnswer(Value):
    """Documents by decreasing score; equal scores keep the order of the request.

    Blank documents come last.
    """

    id: str
    """The request's `X-Request-ID`."""
    model: str
    """The model that scored: the cross-encoder, or without one the encoder."""
    results: list[Relevance]
    usage: Usage = Usage()
