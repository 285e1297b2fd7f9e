"""The use cases of single candidates: list those of a pool, read one, and change one."""

from dataclasses import replace

from turnwise.service.current_request import reads_learned
from turnwise.service.errors import CandidateNotFound, InvalidRequest
from turnwise.service.pools import Candidate, Filter, PoolView, warn_about_filter
from turnwise.service.pools.candidate import find_excesses
from turnwise.service.pools.listing import WordSearch
from turnwise.service.use_cases.pools import Pools
from turnwise.service.use_cases.upload_checks import UploadChecks
from turnwise.service.wire.pools import (
    MOST_EXAMPLES,
    CandidateChange,
    CandidatePage,
    CandidatesQuery,
    Edited,
    LearnedText,
    PoolCandidate,
    UploadedCandidate,
)
from turnwise.service.wire.problems import FieldError


class Candidates:
    """Lists, reads and changes the candidates of pools."""

    def __init__(self, pools: Pools, checks: UploadChecks) -> None:
        self._pools = pools
        self._checks = checks

    async def list_candidates(
        self, namespace: str, pool: str, query: CandidatesQuery
    ) -> CandidatePage:
        """Return a page of the candidates that match.

        Raises:
            InvalidRequest: The filter makes no sense.
            PoolNotFound: There is no such pool.
        """
        where = Filter.of(query.where)
        view = await self._pools.view(namespace, pool)
        words = WordSearch.of(query.q, in_learned=reads_learned.get())
        page = await view.list_page(query.cursor or "", query.limit, where, words)
        warnings = await warn_about_filter(view, where)
        return CandidatePage.model_construct(
            candidates=[_describe(candidate) for candidate in page.candidates],
            cursor=page.cursor,
            matching=page.matching,
            warnings=warnings,
        )

    async def get_candidate(self, namespace: str, pool: str, id: str) -> PoolCandidate:
        """Return a candidate.

        Raises:
            PoolNotFound: There is no such pool.
            CandidateNotFound: It lacks the candidate.
        """
        view = await self._pools.view(namespace, pool)
        return _describe(await find_candidate(view, id, newest=True))

    async def change_candidate(
        self, namespace: str, pool: str, id: str, change: CandidateChange
    ) -> Edited:
        """Change some fields of a candidate in a new version; raises as `Pools.upsert`.

        Raises:
            CandidateNotFound: The pool lacks the candidate.
            InvalidRequest: The metadata or the body are too large, or the examples too many.
        """
        _check_excesses(change)
        view = await self._pools.view(namespace, pool)
        changed = _apply(change, await find_candidate(view, id, newest=True))
        # Others may edit the candidate meanwhile, so its newest version is changed again.
        edited = await self._pools.revise(
            namespace, pool, lambda before: _apply(change, before), [id]
        )
        warnings = await self._checks.warn([changed])
        return replace(edited, unchanged=1 - edited.upserted, warnings=warnings)


async def find_candidate(view: PoolView, id: str, *, newest: bool = False) -> Candidate:
    """Return a candidate of a pool.

    Args:
        view: The pool.
        id: Id of the candidate.
        newest: Whether to wait for all edits that a candidate store has acknowledged.

    Raises:
        CandidateNotFound: The pool lacks it.
    """
    (found,) = await view.fetch([id], newest=newest)
    if found is None:
        raise CandidateNotFound(f"pool '{view.name}' has no candidate '{id}'")
    return found


def _check_excesses(change: CandidateChange) -> None:
    given = UploadedCandidate.model_construct(
        text=change.text or "", metadata=change.metadata or {}, body=change.body
    )
    errors = [FieldError((field,), message) for field, message in find_excesses(given)]
    if errors:
        raise InvalidRequest(errors)


def _apply(change: CandidateChange, before: Candidate) -> Candidate:
    metadata = before.metadata if change.metadata is None else change.metadata
    given = before.examples if change.examples is None else change.examples
    kept = [each for each in given if each not in change.remove_examples]
    examples = dict.fromkeys([*kept, *change.add_examples])
    if len(examples) > MOST_EXAMPLES:
        message = f"{len(examples)} examples are more than the limit of {MOST_EXAMPLES}"
        raise InvalidRequest.field(message, "add_examples")
    changed = Candidate.of(
        change.text or before.text,
        before.id,
        metadata,
        examples=examples,
        group=change.group if "group" in change.model_fields_set else before.group,
        body=change.body if "body" in change.model_fields_set else before.body,
    )
    return changed.keep_learned(before)


def _describe(candidate: Candidate) -> PoolCandidate:
    learned = [
        LearnedText.model_construct(text=each.text, at=each.at) for each in candidate.learned
    ]
    return PoolCandidate.model_construct(
        id=candidate.id,
        text=candidate.text,
        metadata=candidate.metadata,
        group=candidate.group,
        body=candidate.body,
        examples=list(candidate.examples),
        learned=learned if reads_learned.get() else None,
    )
