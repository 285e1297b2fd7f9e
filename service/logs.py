"""Structured logs."""

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id")
"""The request that is being answered, for every line logged on its way."""
