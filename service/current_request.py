"""Facts about the HTTP request that the current task or thread works for.

Tasks and `asyncio.to_thread` copy them; `FairThreads.run` does as well.
"""

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id")
"""Its id, for log lines and problems."""
namespace: ContextVar[str] = ContextVar("namespace")
"""The namespace that it is about: in log lines, and for its share of the encoder and of threads."""
reads_learned: ContextVar[bool] = ContextVar("reads_learned", default=True)
"""Whether the caller may read learned examples, which are words of users."""
