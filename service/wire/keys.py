"""API keys as the settings hold them: the digest of a key, and never the key itself."""

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

Scope = Literal["select", "pools", "admin"]


class ApiKey(BaseModel):
    """An API key. Its name is the namespace of its sessions and pools; keys may share a name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    scopes: frozenset[Scope] = frozenset({"select"})
    expires: AwareDatetime | None = None
    """When the key stops being valid; None if never."""
