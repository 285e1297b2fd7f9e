"""Warns about what an upload may contain, but is probably a mistake."""

import asyncio
from collections.abc import Iterable, Sequence

from turnwise.models.roles import Role, RoleText
from turnwise.service.encoder.model import Encoder
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.slots import has_other_braces

_MOST_NAMED = 20
"""Most ids that a warning names."""


class UploadChecks:
    """Finds texts that the encoder cuts or hardly knows, and slots and `after` that do nothing."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    async def warn(self, candidates: Sequence[Candidate]) -> list[str]:
        """Return warnings, which name the candidates by their ids."""
        return await asyncio.to_thread(self._warn, candidates)

    def _warn(self, candidates: Sequence[Candidate]) -> list[str]:
        texts = [each.id for each in candidates if self._cuts_any([each.text], Role.AFTER)]
        examples = [each.id for each in candidates if self._cuts_any(each.examples, Role.SAID)]
        knows_script = self._encoder.knows_script
        unknown = [
            each.id for each in candidates if not knows_script(RoleText(each.text, Role.AFTER))
        ]
        braces = [each.id for each in candidates if has_other_braces(each.text)]
        wrong_after = [each.id for each in candidates if each.has_wrong_after]
        found = {
            "the model reads only the beginning of": texts,
            "the model reads only the beginning and the end of examples of": examples,
            "the model hardly knows the script of": unknown,
            "braces that belong to no slot are said as they are, in": braces,
            "metadata.after must be a text or a list of texts, in": wrong_after,
        }
        return [f"{warning} {_name_candidates(ids)}" for warning, ids in found.items() if ids]

    def _cuts_any(self, texts: Iterable[str], role: Role) -> bool:
        """Return whether the encoder cuts one of these texts when it reads them in a role."""
        return any(self._encoder.is_too_long(RoleText(text, role)) for text in texts)


def _name_candidates(ids: Sequence[str]) -> str:
    named = ", ".join(f"'{each}'" for each in ids[:_MOST_NAMED])
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return f"{'candidate' if len(ids) == 1 else 'candidates'} {named}{more}"
