"""The keys of Redis that tests look at, or take away as an eviction does."""

from turnwise.service.sessions.store import SessionKey


def session_key(namespace: str, session: str, part: str) -> str:
    """The key of a part of a session: `meta`, `posts`, `first`, `second`, `answers`, `feedback`."""
    (key,) = SessionKey(namespace, session).keys(part)
    return key


def pool_key(namespace: str, pool: str, part: str) -> str:
    """The key of a part of a pool: `meta`, `log`, `fold`, or `chunk:` and its name."""
    return f"tw:pool:{{{namespace}/{pool}}}:{part}"
