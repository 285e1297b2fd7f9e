"""The checks of an upload: texts that the encoder cuts, and scripts that it hardly knows."""

import asyncio
from collections.abc import Iterable, Sequence

from turnwise.models.roles import Role, RoleText, read_as
from turnwise.service.encoder.model import Encoder
from turnwise.service.pools.candidate import Candidate

_MOST_NAMED = 20
"""Most ids that a warning names."""


class UploadChecks:
    """Finds candidates with texts that the encoder cuts, or whose script it hardly knows."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    async def warn(self, candidates: Sequence[Candidate]) -> list[str]:
        """Return warnings about texts that the encoder cuts, and scripts that it hardly knows.

        The ids of the candidates are in the warnings.
        """
        return await asyncio.to_thread(self._warn, candidates)

    def _warn(self, candidates: Sequence[Candidate]) -> list[str]:
        texts = [each.id for each in candidates if self._cuts_any([each.text], Role.AFTER)]
        examples = [each.id for each in candidates if self._cuts_any(each.examples, Role.SECOND)]
        knows_script = self._encoder.knows_script
        after = read_as(Role.AFTER)
        unknown = [each.id for each in candidates if not knows_script(RoleText(each.text, *after))]
        warnings = []
        if texts:
            warnings.append(f"the model reads only the beginning of {_name_candidates(texts)}")
        if examples:
            warnings.append(
                "the model reads only the beginning and the end of examples of "
                f"{_name_candidates(examples)}"
            )
        if unknown:
            warnings.append(f"the model hardly knows the script of {_name_candidates(unknown)}")
        return warnings

    def _cuts_any(self, texts: Iterable[str], role: Role) -> bool:
        """Return whether the encoder cuts one of these texts when it reads them in a role."""
        return any(self._encoder.is_too_long(RoleText(text, *read_as(role))) for text in texts)


def _name_candidates(ids: Sequence[str]) -> str:
    named = ", ".join(f"'{each}'" for each in ids[:_MOST_NAMED])
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return f"{'candidate' if len(ids) == 1 else 'candidates'} {named}{more}"
