"""`PoolView`: one version of a pool, which a request searches in memory or in a store."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple, Protocol, Self

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Spread
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Compared, Filter
from turnwise.service.pools.listing import Page, WordSearch
from turnwise.service.pools.memory.examples import Examples
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.memory.segment import Hit, Match
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import PoolSettings

_MOST_FIELDS = 8
"""Most fields of a filter that are looked for in the candidates of a pool."""


class CandidateBatch(NamedTuple):
    """Candidates and the vectors of their texts and examples."""

    candidates: Sequence[Candidate]
    """n candidates."""
    vectors: Float16
    """(n, d)."""
    examples: Float16
    """(m, d), of `all_examples` of each candidate in turn."""

    @classmethod
    def of(
        cls, candidates: Sequence[Candidate], vectors: Float16, examples: Examples | None
    ) -> Self:
        """Return candidates with their vectors and examples; None if none has examples."""
        return cls(candidates, vectors, examples.vectors if examples else vectors[:0])


class PoolView(Protocol):
    """One version of a pool, as a request searches it.

    Methods raise StoreUnavailable if the candidate store of the pool does not answer.
    """

    @property
    def name(self) -> str:
        """Name of the pool."""

    @property
    def version(self) -> int:
        """Newest version that was known when the request began."""

    @property
    def encoder_name(self) -> EncoderName:
        """The encoder of its candidates."""

    @property
    def settings(self) -> PoolSettings:
        """Settings that may change."""

    async def search(self, query: Float32, top_k: int, where: Filter | None = None) -> list[Hit]:
        """Return the top candidates by inner product, best first, ties by id; all if fewer.

        If several tie for the last place, replicas may return different ones.

        Args:
            query: (d,).
            top_k: Number of candidates, at least 1.
            where: Leaves out the candidates that it does not match.

        Raises:
            ValueError: The query is not a finite vector of d numbers.
        """

    async def spread(self, query: Float32, where: Filter | None = None) -> Spread:
        """Return the scores of a query (d,) over the candidates that a filter matches."""

    async def lacks(self, having: Filter) -> bool:
        """Return whether there are candidates, and a filter matches none of them.

        A candidate store may answer false although it matches none.
        """

    @property
    def has_examples(self) -> bool:
        """Whether any candidate has examples."""

    async def search_examples(
        self, said: Float32, top_k: int, where: Filter | None = None
    ) -> list[Hit]:
        """Return the top candidates by their best examples, best first, ties by id.

        The score of each is the cosine of its best example, which is the `match`. Candidates
        without examples are left out.

        Args:
            said: (d,) an utterance of another speaker than the responder, in the space of examples.
            top_k: Number of candidates, at least 1.
            where: Leaves out the candidates that it does not match.

        Raises:
            ValueError: `said` is not a finite vector of d numbers.
        """

    async def best_examples(self, said: Float32, ids: Sequence[str]) -> list[Match | None]:
        """Return the best example of each of k candidates; None if it has none, or is not there.

        Args:
            said: (d,), as in `search_examples`.
            ids: Their ids.
        """

    async def example_spread(self, said: Float32, where: Filter | None = None) -> Spread:
        """Return the cosines of a vector (d,) with all examples of the matching candidates.

        The pool has examples.
        """

    async def groups_of(self, texts: Collection[str]) -> frozenset[str]:
        """Return the groups of the candidates with these texts, as `fold_text` gives them."""

    async def search_followers(
        self, reply: str | None, text: str, query: Float32, top_k: int, where: Filter | None = None
    ) -> list[Hit]:
        """Return the top candidates that follow a reply, as `search` does; none if none does.

        Args:
            reply: The id of the reply; None if it is only known by its text.
            text: Its text. A candidate store does not find a reply by it.
            query: (d,).
            top_k: Number of candidates, at least 1.
            where: Leaves out the candidates that it does not match.
        """

    async def fetch(self, ids: Sequence[str], *, newest: bool = False) -> list[Candidate | None]:
        """Return k candidates by their ids; None for those that the pool lacks.

        Args:
            ids: The ids.
            newest: Whether to wait for all edits that a candidate store has acknowledged.
        """

    async def list_page(
        self, after: str, limit: int, where: Filter | None, words: WordSearch | None
    ) -> Page:
        """Return the candidates after an id that match.

        All pages together have each candidate once, if it stays in the pool meanwhile. In a
        candidate store a page may have fewer candidates than `limit`, or none, and others follow.

        Args:
            after: The cursor of the page before; empty for the first page.
            limit: Most candidates of the page.
            where: Leaves out the candidates that it does not match.
            words: Leaves out the candidates that do not contain these.
        """

    async def vectors(self, ids: Sequence[str]) -> Float32:
        """Return the vectors (k, d) of k candidates.

        Raises:
            CandidateNotFound: The pool lacks one of the ids.
        """

    def scan(self) -> AsyncIterator[CandidateBatch]:
        """Yield all candidates with their vectors (n, d), in batches."""


async def warn_about_filter(view: PoolView, where: Filter | None) -> list[str]:
    """Return a warning for each field that no candidate has with a value of the filter's kind."""
    compared = sorted(where.condition.compared) if where else []
    warnings: dict[str, None] = {}
    for each in compared[:_MOST_FIELDS]:
        if await view.lacks(Filter.comparable(each)):
            warnings[await _explain_lack(view, each)] = None
    return list(warnings)


async def _explain_lack(view: PoolView, compared: Compared) -> str:
    field = ".".join(compared.path)
    if await view.lacks(Filter.having(compared.path)):
        return f"no candidate of pool '{view.name}' has the field '{field}' of the filter"
    return (
        f"the filter compares '{field}' with {' and '.join(compared.kinds)}, which it is in no "
        f"candidate of pool '{view.name}'"
    )
