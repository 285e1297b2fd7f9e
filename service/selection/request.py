"""A request to select candidates: its options, the pool and the context."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from turnwise.models.scores import ROWS_KEPT, Aggregation
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, PoolView
from turnwise.service.selection.context import EncodedContext
from turnwise.service.selection.repeats import Repeats
from turnwise.service.wire.fields import Repeat, Rerank, RerankerName, Wordings


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a selection, as a request gives them.

    Attributes:
        aggregation: The aggregation in force: that of the request, or the model's own.
        where: The filter that candidates must match; None matches all.
        slots: The values for slots; a candidate with other slots is not offered.
        repeat: Which candidates that the responder has said may be offered.
        exclude: Ids of candidates that must not be offered.
        rerank: The re-ranker that scores the hits, or "auto"; None for the first stage alone.
        diversity: How much the candidates must differ from each other, from 0 to 1.
        explain: Whether the contributions of the utterances are wanted.
        wordings: Whether the best wording of each group is listed, or all of them.
    """

    aggregation: Aggregation
    where: Filter | None
    repeat: Repeat
    exclude: frozenset[str] = frozenset()
    rerank: Rerank | None = None
    diversity: float = 0.0
    explain: bool = False
    wordings: Wordings = "best"
    slots: Mapping[str, str] = field(default_factory=dict)

    def within(self, where: Filter | None, slots: Mapping[str, str]) -> "Options":
        """Return these options, combined with the filter and the slots of a session."""
        if where and self.where:
            where = where & self.where
        return replace(self, where=where or self.where, slots={**slots, **self.slots})

    @property
    def reranker(self) -> RerankerName | None:
        """The re-ranker that the request names, for all hits."""
        return None if self.rerank == "auto" else self.rerank

    @property
    def scores_pairs(self) -> bool:
        """Whether the pairs of utterances score or explain the hits."""
        return self.explain or self.aggregation.name == "max_sim"

    @property
    def needs_pairs(self) -> bool:
        """Whether the selection needs more than the rows that a session keeps."""
        return self.scores_pairs or (self.aggregation.summed or 0) > ROWS_KEPT


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """A request to select candidates of a pool after a context.

    Attributes:
        view: The pool to select from.
        context: The utterances before the reply, at least one; a pairwise pool reads only their
            texts.
        repeats: The replies that must not be offered again.
        options: The options of the request.
        timings: Records how long each stage takes.
    """

    view: PoolView
    context: EncodedContext
    repeats: Repeats
    options: Options
    timings: Timings

    @property
    def is_pairwise(self) -> bool:
        """Whether the pairwise model encodes the candidates and the context."""
        return self.view.encoder_name == "pairwise"

    @property
    def utterance_count(self) -> int:
        """Number of utterances of the context."""
        return len(self.context.utterances)

    def check_options(self) -> None:
        """Reject options that a pool of the pairwise model cannot serve.

        Raises:
            InvalidRequest: The request has such an option.
        """
        if not self.is_pairwise:
            return
        if self.options.explain:
            raise InvalidRequest.field(
                f"the scores of pool '{self.view.name}' cannot be explained: "
                "they are not sums over utterances",
                "explain",
            )
        if self.options.repeat == "near":
            raise InvalidRequest.field(
                f"'near' cannot compare the candidates of pool '{self.view.name}' with what was "
                "said: another model encodes them",
                "repeat",
            )
