"""Finds the candidates of a pool that may be offered after a context."""

from collections.abc import Mapping

from turnwise.models.groups import best_wordings
from turnwise.models.texts import fold_text
from turnwise.service.pools import Hit, PoolView
from turnwise.service.pools.slots import can_fill, fill_slots
from turnwise.service.selection.answers import count_answers, name_answer
from turnwise.service.selection.confidence import MIN_ANSWERS
from turnwise.service.selection.repeats import Repeats
from turnwise.service.selection.request import SelectionRequest
from turnwise.service.selection.search import ReplySearch

NEAR = 0.85
"""Cosine of two candidates from which one is close to repeating the other. With the shipped model,
79 % of the pairs of STS-B that mean the same (4.5 of 5 or more) reach it, and 15 % of those below
3: `python research/near_repeats.py`."""
_MOST_COPIES = 1000
"""Candidates among which a search looks for more answers."""
_SPARE = 8
"""Most candidates that a first search finds beyond those asked for, in case some were said."""


async def find_hits(
    request: SelectionRequest, search: ReplySearch, *, count: int, answers: int, confident: bool
) -> list[Hit]:
    """Return the best candidates of a pool that may be offered, best first.

    The hits are at least `count`, with at least `answers` answers, or `MIN_ANSWERS` for a
    confidence. There are fewer if the pool has fewer, or if more than `_MOST_COPIES` candidates are
    wordings of a few answers.

    Slots are checked here and not by the filter: that would need a mask for each version of a pool
    and each set of names, and candidate stores cannot filter by the slots of a text.
    """
    repeats = request.repeats
    exclude = request.options.exclude
    slots = request.options.slots
    said_groups = await _find_said_groups(request.view, repeats)
    searched = max(count, answers, MIN_ANSWERS if confident else 1)
    searched += len(exclude) + min(len(repeats.texts) + len(repeats.ids), _SPARE)
    while True:
        hits = await search.search(searched)
        fillable = [hit for hit in hits if can_fill(hit.candidate.text, slots)]
        said = [hit.candidate for hit in fillable if _is_said(hit, repeats, slots)]
        said_groups |= {candidate.group for candidate in said if candidate.group is not None}
        left_out = exclude | repeats.ids | {candidate.id for candidate in said}
        allowed = [
            hit
            for hit in fillable
            if hit.candidate.id not in left_out and hit.candidate.group not in said_groups
        ]
        offered = await _leave_out_near(request.view, allowed, repeats)
        found_all = len(hits) < searched
        has_count = len(offered) >= count
        has_answers = count_answers(offered) >= answers
        if confident:
            names = {name_answer(hit.candidate) for hit in offered}
            has_answers = has_answers and len(names) >= MIN_ANSWERS
        if found_all or (has_count and (has_answers or searched > _MOST_COPIES)):
            return offered
        searched *= 2


def cut_hits(hits: list[Hit], count: int, answers: int) -> list[Hit]:
    """Return the first `count` hits, and more until they have `answers` answers."""
    firsts = best_wordings(hit.candidate.group for hit in hits)
    last = firsts[min(answers, len(firsts)) - 1] if firsts else 0
    return hits[: max(count, last + 1)]


async def _find_said_groups(view: PoolView, repeats: Repeats) -> frozenset[str]:
    """Return the groups with a wording that the responder said and must not say again."""
    if not (repeats.texts or repeats.ids):
        return frozenset()
    named = [candidate for candidate in await view.fetch(sorted(repeats.ids)) if candidate]
    groups = frozenset(candidate.group for candidate in named if candidate.group is not None)
    return groups | await view.groups_of(repeats.texts)


def _is_said(hit: Hit, repeats: Repeats, slots: Mapping[str, str]) -> bool:
    """Return whether the responder has said the text of a hit, with the values of its slots."""
    return bool(repeats.texts) and fold_text(fill_slots(hit.candidate.text, slots)) in repeats.texts


async def _leave_out_near(view: PoolView, hits: list[Hit], repeats: Repeats) -> list[Hit]:
    """Return the hits that are not close to what was said."""
    if not (len(repeats.after) and hits):
        return hits
    vectors = await view.vectors([hit.candidate.id for hit in hits])
    nearest = (vectors @ repeats.after.T).max(axis=1)
    return [hit for hit, cosine in zip(hits, nearest, strict=True) if cosine < NEAR]
