"""`AsyncClient`: the client library for asyncio. Each call is a task of the caller's; one link carries them all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any

import msgspec

from messages import public
from messages.client.link import ClientLink
from messages.client.options import deadline_of, endpoint_of, request_of
from messages.client.stream import Answer, Next, Piece, StreamState, error_of
from messages.errors import DeadlineExceeded, InvalidRequest, Unavailable
from messages.ids import mint_request_id
from messages.run_dir import DEFAULT_PORT
from messages.wire.message import Message

CONNECT_S = 5.0
_CONFIRM_TOKENS = 64
_LEAVING_TURNS = 2  # of the loop, until a stream that nobody holds any more has been closed by it
_CLOSED = "the client was closed"


class AsyncClient:
    """Talks to one server. Use it as an async context manager, on one event loop."""

    def __init__(self, endpoint: str | None = None, *, port: int = DEFAULT_PORT) -> None:
        """`endpoint`: "ipc://..." or "tcp://..."; without one, the server on this HTTP port of this machine.

        Raises: ConfigError.
        """
        self.endpoint = endpoint_of(endpoint, port)
        self._link: ClientLink | None = None
        self._is_closed = False
        self._streams: dict[str, _Stream] = {}

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        await self.close()

    async def generate(self, prompt: str | Iterable[int], **options: Any) -> Answer:
        """The whole answer to a text or to token ids. Options: see `messages.client.options.Options`. Raises: ClientError."""
        return await self._whole(request_of(prompt, None, None, options), options)

    async def chat(self, messages: Iterable[dict[str, str]], **options: Any) -> Answer:
        """The whole answer to a conversation of {"role": ..., "content": ...}. Raises: ClientError."""
        return await self._whole(request_of(None, None, messages, options), options)

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Iterable[int] | None = None,
        messages: Iterable[dict[str, str]] | None = None,
        **options: Any,
    ) -> AsyncGenerator[Piece, None]:
        """The answer piece by piece. Leaving the loop early cancels the request. Raises: ClientError."""
        return self._pieces(request_of(prompt, tokens, messages, options), options)

    async def cancel(self, request: str) -> None:
        """End a request of this client; its stream ends with reason "cancelled"."""
        (await self._connected(CONNECT_S)).hint(public.CancelRequest(request=request))

    async def models(self, deadline_s: float = 10.0) -> list[str]:
        """Names of the served models."""
        call = mint_request_id()
        answer = await self._ask(call, public.ModelsWanted(call=call), deadline_s)
        assert isinstance(answer, public.Models)
        return answer.names

    async def stats(self, deadline_s: float = 10.0) -> dict[str, Any]:
        """The server's summary, as /v1/metrics gives it."""
        call = mint_request_id()
        answer = await self._ask(call, public.StatsWanted(call=call), deadline_s)
        assert isinstance(answer, public.Stats)
        return msgspec.json.decode(answer.summary)

    async def close(self) -> None:
        """Close the connection; whatever is open ends with Unavailable."""
        for _ in range(_LEAVING_TURNS):  # streams that were left just now are still to be cancelled
            await asyncio.sleep(0)
        self._is_closed = True
        for stream in self._streams.values():
            if not stream.state.is_over:
                stream.state.error = Unavailable(_CLOSED)
                stream.news.set()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _connected(self, longest_s: float) -> ClientLink:
        if self._is_closed:
            raise Unavailable(_CLOSED)
        link = self._link
        if link is None:
            link = self._link = ClientLink(self.endpoint, self._confirm)
        if not link.is_on_this_loop:
            raise Unavailable("the client belongs to another event loop: make one inside of each asyncio.run")
        if not link.has_connected:
            patience_s = min(CONNECT_S, longest_s)
            try:
                await asyncio.wait_for(link.connected.wait(), patience_s)
            except TimeoutError:
                raise Unavailable(f"{self.endpoint}: no server answered within {patience_s:g} s") from None
        return link

    async def _whole(self, generate: public.Generate, options: dict[str, Any]) -> Answer:
        stream = _Stream(generate)
        async for _ in self._follow(stream, options):
            pass
        return stream.state.answer()

    async def _pieces(self, generate: public.Generate, options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        stream = _Stream(generate)
        async with aclosing(self._follow(stream, options)) as pieces:  # left here, it is left there
            async for piece in pieces:
                yield piece

    async def _follow(self, stream: _Stream, options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        now_s = asyncio.get_running_loop().time
        deadline_s = deadline_of(options)
        end_s = math.inf if deadline_s is None else now_s() + deadline_s
        link = await self._connected(end_s - now_s())
        key, state, n_read = stream.key, stream.state, 0
        if key in self._streams:
            raise InvalidRequest(f"expected an id that is not in use by this client, got {key!r}", "request")
        stream.say_again = lambda: link.say_again(key)
        stream.confirm = lambda up_to: link.hint(public.Received(request=key, up_to=up_to))
        self._streams[key] = stream
        try:
            link.open(key, stream)
            while True:
                while n_read < len(state.pieces):
                    n_read += 1
                    yield state.pieces[n_read - 1]
                if state.is_over:
                    break
                stream.news.clear()
                await asyncio.wait_for(stream.news.wait(), None if end_s == math.inf else max(0.0, end_s - now_s()))
        except TimeoutError:
            why = "" if link.is_connected else f"; nobody answers at {self.endpoint}"
            raise DeadlineExceeded(f"{key}: expected the end within {deadline_s:g} s{why}") from None
        finally:
            link.close_call(key)
            del self._streams[key]
            if not state.is_over and not self._is_closed:
                link.hint(public.CancelRequest(request=key))
        state.answer()

    async def _ask(self, call: str, words: Message, deadline_s: float) -> Message:
        end_s = asyncio.get_running_loop().time() + deadline_s
        link = await self._connected(deadline_s)
        question = _Question(words)
        try:
            link.open(call, question)
            message = await asyncio.wait_for(question.answer, max(0.0, end_s - asyncio.get_running_loop().time()))
        except TimeoutError:
            raise Unavailable(f"{self.endpoint}: no answer within {deadline_s:g} s") from None
        finally:
            link.close_call(call)
        if isinstance(message, public.Failed):
            raise error_of(message)
        return message

    def _confirm(self) -> None:
        for stream in self._streams.values():
            stream.confirm(len(stream.state.tokens))


class _Stream:
    """An open request on the link: see `client_link.OpenCall`."""

    def __init__(self, generate: public.Generate) -> None:
        self.key, self.state = generate.request, StreamState(generate)
        self.news = asyncio.Event()
        self.say_again = lambda: None
        self.confirm = lambda up_to: None
        self._confirmed = 0

    def words(self) -> Message:
        return self.state.generate()

    def take(self, message: public.FrontMessage) -> None:
        match self.state.take(message):
            case Next.SAY_AGAIN:
                self.say_again()
            case Next.PIECE | Next.END:
                self.news.set()
        n_held = self.state.n_held
        if n_held - self._confirmed >= _CONFIRM_TOKENS or self.state.finished is not None:
            self._confirmed = n_held
            self.confirm(n_held)


class _Question:
    """A call with one answer."""

    def __init__(self, words: Message) -> None:
        self._words = words
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def words(self) -> Message:
        return self._words

    def take(self, message: Message) -> None:
        if not self.answer.done():
            self.answer.set_result(message)
