"""Records turns: the times of their stages, metrics, and lines of the journal."""

from turnwise.service.journal import Journal, Offered, TurnLine
from turnwise.service.observe.metrics import MatchKind, Metrics, TurnOutcome
from turnwise.service.observe.timings import Timings
from turnwise.service.selection.pipeline import Selection
from turnwise.service.sessions.store import SessionKey
from turnwise.service.sessions.update import Update
from turnwise.service.wire.filters import join_filters
from turnwise.service.wire.sessions import TurnAnswer, TurnRequest


class TurnRecords:
    """Records turns in the metrics and, where there is one, in the journal."""

    def __init__(self, metrics: Metrics, journal: Journal | None) -> None:
        self._metrics = metrics
        self._journal = journal

    def start_timings(self) -> Timings:
        """Return the timings of a turn that begins now."""
        return Timings(self._metrics, "encode", "state", "retrieve", "rerank")

    def add(
        self,
        session: SessionKey,
        request: TurnRequest,
        update: Update,
        version: int,
        *,
        selection: Selection,
        answer: TurnAnswer,
    ) -> None:
        """Record a turn that was committed.

        Args:
            session: The session.
            request: The request for the turn.
            update: The update of the session.
            version: The version of the session after it.
            selection: The selection of candidates; it is not counted if the answer has no pool.
            answer: The answer to the turn.
        """
        namespace = session.namespace
        if answer.pool:
            self._count_selection(namespace, answer.pool.name, selection)
        if answer.truncated:
            self._metrics.truncated_turns.labels(namespace).inc()
        if self._journal:
            self._journal.write(_make_line(session, request, update, version, answer))

    def _count_selection(self, namespace: str, pool: str, selection: Selection) -> None:
        outcome: TurnOutcome = "answered" if selection.candidates else "empty"
        if selection.abstained:
            outcome = "abstained"
        self._metrics.turns.labels(namespace, pool, outcome).inc()
        if selection.cascade:
            self._metrics.cascades.labels(namespace, pool, selection.cascade).inc()
        if selection.candidates:
            matched = selection.candidates[0].matched
            has_example = matched is not None and (matched.example or matched.learned)
            kind: MatchKind = "example" if has_example else "text"
            self._metrics.matched.labels(namespace, pool, kind).inc()


def _make_line(
    session: SessionKey, request: TurnRequest, update: Update, version: int, answer: TurnAnswer
) -> TurnLine:
    """Return the line of a turn for the journal."""
    turn = update.turns[-1]
    where_of_session = update.base.where if update.base else None
    offered = [
        Offered.model_construct(id=each.id, text=each.template or each.text, score=each.score)
        for each in answer.candidates
    ]
    return TurnLine.model_construct(
        at=turn.at,
        namespace=session.namespace,
        session=session.id,
        version=version,
        turn=len(update.turns),
        speaker=turn.speaker,
        text=turn.text,
        candidate=turn.candidate,
        responder=update.responder,
        model=answer.model,
        pool=answer.pool,
        where=join_filters(where_of_session, request.where),
        offered=offered,
    )
