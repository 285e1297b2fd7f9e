"""The use case of chat completions: the next reply after the messages of a chat client.

If the request names a session, the messages become turns of it; otherwise they are not kept. If the
pool has no reply, the fallback service answers. Without such a service, or if it fails, the answer
is the fallback text of the pool.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from time import time
from typing import Protocol, TypeVar

from turnwise.service.current_request import request_id
from turnwise.service.errors import FallbackUnavailable, InvalidRequest
from turnwise.service.observe.metrics import ChatSource, Metrics
from turnwise.service.sessions.store import Session, SessionKey, SessionStore
from turnwise.service.sessions.turns import Turn
from turnwise.service.use_cases.pools import Pools
from turnwise.service.use_cases.turn import Turns
from turnwise.service.wire.chat import (
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChatDelta,
    ChatDetails,
    ChatModel,
    ChatModelList,
    ChatReply,
    ChatRequest,
    ChatUsage,
    ChunkChoice,
    JsonObject,
)
from turnwise.service.wire.fields import MAX_MESSAGE_CHARS, RESPONDER, USER
from turnwise.service.wire.filters import join_filters
from turnwise.service.wire.sessions import TurnAnswer, TurnRequest

_Given = TypeVar("_Given")

_log = logging.getLogger("turnwise.chat")


class Fallback(Protocol):
    """A chat service that answers where the pool has no reply.

    Both methods take the request as the client sent it, without the field `turnwise`. They raise
    FallbackUnavailable if no usable answer comes in time.
    """

    async def complete(self, request: JsonObject) -> JsonObject:
        """Return the whole answer."""

    async def stream(self, request: JsonObject) -> AsyncGenerator[JsonObject, None]:
        """Return the events of the answer, once the first one has arrived."""


class Chat:
    """Completes chats with candidates of a pool."""

    def __init__(
        self,
        *,
        turns: Turns,
        sessions: SessionStore,
        pools: Pools,
        fallback: Fallback | None,
        metrics: Metrics,
        max_turns: int,
    ) -> None:
        """Take the parts.

        Args:
            turns: Selects the candidates.
            sessions: Has the turns of a session.
            pools: Lists the pools, and has their fallback texts.
            fallback: Answers where the pool has no reply; None without such a service.
            metrics: Counts the completions.
            max_turns: Greatest number of messages that are read.
        """
        self._turns = turns
        self._sessions = sessions
        self._pools = pools
        self._fallback = fallback
        self._metrics = metrics
        self._max_turns = max_turns

    async def models(self, namespace: str) -> ChatModelList:
        """Return the pools of a namespace and their aliases."""
        models = [
            ChatModel(id=name, created=int(pool.created_at))
            for pool in await self._pools.list(namespace)
            for name in (pool.name, *pool.aliases)
        ]
        return ChatModelList(data=models)

    async def complete(
        self, namespace: str, request: ChatRequest
    ) -> tuple[ChatSource, ChatAnswer | JsonObject]:
        """Return the answer to a request, and where it comes from.

        Raises:
            InvalidRequest: No message has a text, or the filter or the confidence makes no sense.
            PoolNotFound: There is no such pool.
            TurnConflict: Another request added a turn to the session meanwhile.
            FallbackUnavailable: The fallback service failed, and the pool has no fallback text.
            ServiceError: As `Turns.turn` says.
        """
        call = self._fallback.complete if self._fallback else None
        return await self._complete(namespace, request, call)

    async def stream(
        self, namespace: str, request: ChatRequest
    ) -> tuple[ChatSource, AsyncGenerator[ChatChunk | JsonObject, None]]:
        """Return the events of the answer to a request, and where it comes from.

        It raises as `complete` does. The events may raise FallbackUnavailable as well, if the
        fallback service fails after it began to answer.
        """
        call = self._fallback.stream if self._fallback else None
        source, answer = await self._complete(namespace, request, call)
        if not isinstance(answer, ChatAnswer):
            return source, answer
        options = request.stream_options
        with_usage = options is not None and options.include_usage
        return source, _stream(answer, with_usage=with_usage)

    async def _complete(
        self,
        namespace: str,
        request: ChatRequest,
        call: Callable[[JsonObject], Awaitable[_Given]] | None,
    ) -> tuple[ChatSource, ChatAnswer | _Given]:
        """Return the answer of the pool, or else that of a call of the fallback service."""
        offered = await self._offer(namespace, request)
        view = await self._pools.view(namespace, request.model)
        texts = [candidate.text for candidate in offered.candidates]
        if texts:
            self._count(namespace, view.name, "candidate")
            return "candidate", _make_answer(request, offered, texts)
        fallback = view.settings.fallback
        if call:
            try:
                answer = await call(request.forwarded)
            except FallbackUnavailable as error:
                _log.warning("%s", error)
                self._count(namespace, view.name, "failed")
                if fallback is None:
                    raise
            else:
                self._count(namespace, view.name, "service")
                return "service", answer
        source: ChatSource = "text" if fallback else "none"
        self._count(namespace, view.name, source)
        return source, _make_answer(request, offered, [fallback or ""])

    def _count(self, namespace: str, pool: str, source: ChatSource) -> None:
        self._metrics.chat_completions.labels(namespace, pool, source).inc()

    async def _offer(self, namespace: str, request: ChatRequest) -> TurnAnswer:
        if not request.context:
            reason = "needs a message of the user or the assistant that has a text"
            raise InvalidRequest.field(reason, "messages")
        session_id = request.turnwise.session_id
        try:
            if session_id is None:  # the messages are not kept
                *before, newest = self._read_turns(request, RESPONDER)
                asked = _ask(request, newest)
                return await self._turns.answer_after(namespace, before, asked, RESPONDER)
            return await self._select_in_session(namespace, request, session_id)
        except InvalidRequest as error:
            raise error.within("turnwise") from None

    async def _select_in_session(
        self, namespace: str, request: ChatRequest, session_id: str
    ) -> TurnAnswer:
        """Add the messages that a session lacks to it, and return the candidates after them."""
        session, _ = await self._sessions.read(SessionKey(namespace, session_id))
        responder = session.responder if session else RESPONDER
        kept = session.turns if session else ()
        new = missing_turns(kept, self._read_turns(request, responder))
        if not new:  # the client asks again
            asked = _ask(request, kept[-1], of_session=session)
            again = await self._turns.answer_after(namespace, kept[:-1], asked, responder)
            return again.model_copy(update={"turn": len(kept)})
        for number, turn in enumerate(new, len(kept) + 1):
            is_newest = turn is new[-1]
            asked = _ask(request, turn, respond=is_newest, commit=True, expected_turn=number)
            answer = await self._turns.turn(namespace, session_id, asked)
        return answer

    def _read_turns(self, request: ChatRequest, responder: str) -> list[Turn]:
        """Return the newest messages of the user and the assistant as turns."""
        speakers = {"user": USER, "assistant": responder}
        return [
            Turn(speakers[message.role], message.text[:MAX_MESSAGE_CHARS].strip(), time())
            for message in request.context[-self._max_turns :]
        ]


def missing_turns(kept: Sequence[Turn], given: Sequence[Turn]) -> Sequence[Turn]:
    """Return the given turns that come after those which a session keeps.

    A client may leave out the oldest messages, and sends the bot's reply with the next message of
    the user. The given turns before the new ones must equal the last turns of the session, as far
    back as both go. If there are no such turns, only the last given turn is new.
    """
    if not kept:
        return given
    kept_texts = [(turn.speaker, turn.text) for turn in kept]
    given_texts = [(turn.speaker, turn.text) for turn in given]
    for known in range(len(given), 0, -1):
        overlap = min(known, len(kept))
        if given_texts[known - overlap : known] == kept_texts[-overlap:]:
            return given[known:]
    return given[-1:]


async def _stream(
    answer: ChatAnswer, *, with_usage: bool
) -> AsyncGenerator[ChatChunk | JsonObject, None]:
    """Yield an answer as the events of a stream: of each choice its role, its text and its end."""

    def chunk(
        *choices: ChunkChoice, usage: ChatUsage | None = None, details: ChatDetails | None = None
    ) -> ChatChunk:
        return ChatChunk(
            id=answer.id,
            created=answer.created,
            model=answer.model,
            choices=list(choices),
            usage=usage,
            turnwise=details,
        )

    for index, choice in enumerate(answer.choices):
        begin = ChatDelta(role="assistant", content="")
        details = answer.turnwise if index == 0 else None
        yield chunk(ChunkChoice(index=index, delta=begin), details=details)
        yield chunk(ChunkChoice(index=index, delta=ChatDelta(content=choice.message.content)))
        yield chunk(ChunkChoice(index=index, finish_reason="stop"))
    if with_usage:
        yield chunk(usage=answer.usage)


def _ask(
    request: ChatRequest,
    turn: Turn,
    *,
    respond: bool = True,
    commit: bool = False,
    expected_turn: int | None = None,
    of_session: Session | None = None,
) -> TurnRequest:
    """Return the request for a turn of the chat, with the settings of the session as well."""
    return TurnRequest(
        speaker=turn.speaker,
        text=turn.text,
        pool=request.model,
        top_k=request.n or 1,
        where=join_filters(of_session.where if of_session else None, request.turnwise.where),
        slots={**(of_session.slots if of_session else {}), **request.turnwise.slots},
        min_confidence=request.turnwise.min_confidence if respond else None,
        respond=respond,
        commit=commit,
        expected_turn=expected_turn,
    )


def _make_answer(request: ChatRequest, offered: TurnAnswer, texts: Sequence[str]) -> ChatAnswer:
    choices = [
        ChatChoice.model_construct(index=index, message=ChatReply.model_construct(content=text))
        for index, text in enumerate(texts)
    ]
    return ChatAnswer.model_construct(
        id=f"chatcmpl-{request_id.get('')}",
        created=int(time()),
        model=request.model,
        choices=choices,
        turnwise=ChatDetails.model_construct(
            candidates=offered.candidates,
            confidence=offered.confidence,
            abstained=offered.abstained,
            reranked=offered.reranked,
            truncated=offered.truncated,
            warnings=offered.warnings,
            pool=offered.pool,
            turn=offered.turn,
        ),
    )
