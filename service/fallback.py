"""A service with OpenAI's chat API, which answers where a pool has no reply.

It gets the fields that the client sent and nothing else, with another `model`. The redaction hook
changes their texts first.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

import httpx
from pydantic import JsonValue
from pydantic_core import from_json

from turnwise.service.errors import FallbackUnavailable
from turnwise.service.redaction import Hook, redact_text
from turnwise.service.wire.chat import JsonObject

_CONNECT_SECONDS = 2.0
_KEPT = {"role", "type", "id", "tool_call_id", "tools", "tool_choice", "response_format", "model"}
"""Fields whose values the hook does not see: the service needs them as they are."""
_DATA = "data:"
_END = "[DONE]"

_log = logging.getLogger("turnwise.chat")


class FallbackService:
    """Calls the service; see `Fallback` in `use_cases/chat.py`."""

    def __init__(
        self, url: str, *, key: str | None, model: str, timeout: float, redact: Hook | None
    ) -> None:
        """Prepare calls; nothing is called yet.

        Args:
            url: The endpoint.
            key: Sent as bearer token, if there is one.
            model: The model that it is asked for.
            timeout: Seconds until an answer is complete, or until the next event of a stream.
            redact: Changes every text before it is sent; None without a hook.
        """
        self._url = url
        self._model = model
        self._timeout = timeout
        self._redact = redact
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
        )

    async def close(self) -> None:
        """Close the kept connections."""
        await self._http.aclose()

    async def complete(self, request: JsonObject) -> JsonObject:
        """Return the whole answer.

        Raises:
            FallbackUnavailable: No usable answer came in time.
        """
        body = await self._prepare(request)
        with _translate_failures():
            async with asyncio.timeout(self._timeout):
                response = await self._http.post(self._url, json=body)
            _check_status(response)
            answer = _parse_event(response.content)
            if not answer["choices"]:
                raise ValueError("no choice")
            return answer

    async def stream(self, request: JsonObject) -> AsyncGenerator[JsonObject, None]:
        """Return the events of the answer, once the first one has arrived.

        Raises:
            FallbackUnavailable: No usable event came in time. Later ones may raise it as well.
        """
        events = self._read_events(await self._prepare(request))
        with _translate_failures():
            async with asyncio.timeout(self._timeout):
                first = await anext(events, None)
        if first is None:
            raise FallbackUnavailable("the fallback service sent no event")
        return _continue(first, events)

    async def _read_events(self, body: JsonObject) -> AsyncGenerator[JsonObject, None]:
        with _translate_failures():
            async with self._http.stream("POST", self._url, json=body) as response:
                _check_status(response)
                async for line in response.aiter_lines():
                    if not line.startswith(_DATA):
                        continue
                    data = line.removeprefix(_DATA).strip()
                    if data == _END:
                        return
                    yield _parse_event(data)

    async def _prepare(self, request: JsonObject) -> JsonObject:
        """Return the body of a call."""
        body = {**request, "model": self._model}
        if self._redact is None:
            return body
        try:
            return await asyncio.to_thread(_redact_fields, body, self._redact)
        except Exception as error:  # a hook may raise anything
            _log.exception("the redaction hook failed")
            raise FallbackUnavailable("the redaction hook failed") from error


@contextmanager
def _translate_failures() -> Iterator[None]:
    """Turn every failure of a call into FallbackUnavailable."""
    try:
        yield
    except TimeoutError:
        raise FallbackUnavailable("the fallback service took too long") from None
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        raise FallbackUnavailable(f"the fallback service failed: {why}") from None
    except ValueError:
        raise FallbackUnavailable(
            "the fallback service does not answer as /v1/chat/completions"
        ) from None


def _check_status(response: httpx.Response) -> None:
    if response.status_code != httpx.codes.OK:
        raise FallbackUnavailable(f"the fallback service answered {response.status_code}")


def _parse_event(data: str | bytes) -> JsonObject:
    """Return an answer or an event, which must have choices.

    Raises:
        ValueError: It is neither.
    """
    value = from_json(data)
    if not (isinstance(value, dict) and isinstance(value.get("choices"), list)):
        raise ValueError("no choices")  # noqa: TRY004 - as for text that is not JSON
    return value


async def _continue(
    first: JsonObject, events: AsyncGenerator[JsonObject, None]
) -> AsyncGenerator[JsonObject, None]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


def _redact_fields(fields: JsonObject, hook: Hook) -> JsonObject:
    return {
        name: value if name in _KEPT else _redact_value(value, hook)
        for name, value in fields.items()
    }


def _redact_value(value: JsonValue, hook: Hook) -> JsonValue:
    if isinstance(value, str):
        return redact_text(value, hook)
    if isinstance(value, list):
        return [_redact_value(each, hook) for each in value]
    return _redact_fields(value, hook) if isinstance(value, dict) else value
