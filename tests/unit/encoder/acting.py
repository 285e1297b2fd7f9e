"""Runs code as if for a request of a namespace."""

from collections.abc import Iterator
from contextlib import contextmanager

from turnwise.service.current_request import namespace


@contextmanager
def acting(name: str) -> Iterator[None]:
    """Let the tasks that are made in the block work for a namespace."""
    token = namespace.set(name)
    try:
        yield
    finally:
        namespace.reset(token)
