"""`AsyncClient`: the client library for asyncio. Each call runs in the caller's task; one link carries all of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, TypeVar

import msgspec
import numpy as np

from messages import public
from messages.client.answer import Answer, Piece
from messages.client.link import ClientLink, OpenCall
from messages.client.options import deadline_of, documents_options, endpoints_of, gateways_of, request_of, server_key_of
from messages.client.stream import Next, StreamState, error_of
from messages.errors import DeadlineExceeded, InvalidRequest, Unavailable
from messages.ids import mint_request_id
from messages.run_dir import DEFAULT_PORT
from messages.wire.arrays import EMPTY_I32, int32s
from messages.wire.message import Message

K = TypeVar("K", bound=public.KeyedMessage)

CONNECT_S = 5.0
_CONFIRM_TOKENS = 64
_RETRY_S = 1.0  # until a request that is accepted is asked for again, because a gateway that may have it does not answer
_CLOSING_TURNS = 2  # iterations of the loop until it has closed a stream whose last reference is gone
_CLOSED = "the client was closed"


class AsyncClient:
    """A client of one server. Use it as an async context manager, on one event loop."""

    def __init__(
        self, endpoint: str | Sequence[str] | None = None, *, port: int = DEFAULT_PORT, api_key: str | None = None,
        server_key: str | None = None,
    ) -> None:  # fmt: skip
        """`endpoint`: "ipc://..." or "tcp://..."; several are those of the gateways of one server, and the first that answers
        is used. Without one: the server on this HTTP port of this machine. The other gateways of an "ipc://..." are found.
        `api_key`: of a server that asks for one. `server_key`: its public key, if it encrypts ZeroMQ. Raises: ConfigError.
        """
        self._endpoints, self._api_key = endpoints_of(endpoint, port), api_key
        self._server_key = server_key_of(server_key, self._endpoints)
        self.endpoint = self._endpoints[0]
        self._link: ClientLink | None = None
        self._is_closed = False
        self._streams: dict[str, _Stream] = {}

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        await self.close()

    @documents_options
    async def generate(self, prompt: str | Iterable[int], **options: Any) -> Answer:
        """The whole answer to a text or to token ids.

        Options: OPTIONS. `sampling` replaces the single sampling parameters; `messages.client.options.Options` has the types.
        Raises: ClientError.
        """
        return await self._whole(request_of(prompt, None, None, options), options)

    async def chat(self, messages: Iterable[dict[str, Any]], **options: Any) -> Answer:
        """The whole answer to a conversation of {"role": ..., "content": ...}, as over HTTP, with calls of tools and results.

        Options: as `generate`. Raises: ClientError.
        """
        return await self._whole(request_of(None, None, messages, options), options)

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Iterable[int] | None = None,
        messages: Iterable[dict[str, Any]] | None = None,
        **options: Any,
    ) -> AsyncGenerator[Piece, None]:
        """The answer to exactly one of `prompt`, `tokens` and `messages`, piece by piece.

        Breaking out of the iteration cancels the request. Options: as `generate`. Raises: ClientError.
        """
        return self._pieces(request_of(prompt, tokens, messages, options), options)

    async def cancel(self, request: str) -> None:
        """End a request of this client; its stream ends with reason "cancelled"."""
        (await self._connected(CONNECT_S)).send_once(public.CancelRequest(request=request))

    async def embed(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        *,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
        prompt_name: str | None = None,
        model: str = "",
        deadline_s: float = 60.0,
    ) -> np.ndarray:
        """The vectors of texts, or of lists of token ids: float32 [texts, dimensions].

        `truncate_prompt_tokens`: longer texts are cut; -1: to what the model takes; None: they are refused. `prompt_name`: of
        the model's prompt that stands before each text; "": none; None: the model's default one.
        Raises: ClientError.
        """
        call, written = mint_request_id(), [text for text in texts if isinstance(text, str)]
        ids = [int32s(text) for text in texts if not isinstance(text, str)]
        wanted = public.EmbeddingsWanted(
            call=call,
            texts=written,
            counts=int32s([len(one) for one in ids]),
            ids=int32s(np.concatenate(ids)) if ids else EMPTY_I32,
            model=model,
            dimensions=dimensions,
            truncate_prompt_tokens=truncate_prompt_tokens,
            prompt_name=msgspec.UNSET if prompt_name is None else prompt_name,
        )
        answer = await self._ask(call, wanted, deadline_s)
        assert isinstance(answer, public.TextVectors)
        return answer.vectors.reshape(int(answer.n_texts), -1)

    async def models(self, deadline_s: float = 10.0) -> list[str]:
        """The names of the served models. Raises: ClientError."""
        call = mint_request_id()
        answer = await self._ask(call, public.ModelsWanted(call=call), deadline_s)
        assert isinstance(answer, public.Models)
        return answer.names

    async def stats(self, deadline_s: float = 10.0) -> dict[str, Any]:
        """The summary of the gateway that answers, the same as /v1/metrics; `gateway` names it. Raises: ClientError."""
        call = mint_request_id()
        answer = await self._ask(call, public.StatsWanted(call=call), deadline_s)
        assert isinstance(answer, public.Stats)
        return msgspec.json.decode(answer.summary)

    async def reset_cache(self, *, operator_key: str = "", deadline_s: float = 30.0, **conditions: Any) -> public.CachesReset:
        """Let the server forget cached prefixes and kept answers that meet all `conditions`: `model`, `caller`, `older_than_s`,
        and one of `prompt`, `tokens` and `messages`, with which prompts begin. Returns how many `pages` and `answers` are
        forgotten. `operator_key`: needed over TCP. Raises: ClientError."""
        call = mint_request_id()
        body = msgspec.json.encode({name: value for name, value in conditions.items() if value is not None})
        answer = await self._ask(call, public.CacheResetWanted(call=call, body=body, operator_key=operator_key), deadline_s)
        assert isinstance(answer, public.CachesReset)
        return answer

    async def close(self) -> None:
        """Close the connection. Calls that are open end with Unavailable."""
        for _ in range(_CLOSING_TURNS):  # streams that were abandoned just now send their cancellation first
            await asyncio.sleep(0)
        self._is_closed = True
        for stream in self._streams.values():
            if not stream.state.is_over:
                stream.state.error = Unavailable(_CLOSED)
                stream.changed.set()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _connected(self, max_wait_s: float) -> ClientLink:
        if self._is_closed:
            raise Unavailable(_CLOSED)
        link = self._link
        if link is None:
            link = self._link = ClientLink(self.endpoint, self._confirm, lambda: gateways_of(self._endpoints), self._server_key)
        if not link.is_on_this_loop:
            raise Unavailable("the client belongs to another event loop: make one inside of each asyncio.run")
        if not link.has_connected:
            await self._connect(link, max_wait_s)
        return link

    async def _connect(self, link: ClientLink, max_wait_s: float) -> None:
        """Wait for the first connection, `CONNECT_S` at each gateway of the server. Raises: Unavailable."""
        left_s, tried = max_wait_s, set[str]()
        while not link.has_connected:
            wait_s, endpoint = min(CONNECT_S, left_s), link.endpoint
            try:
                await asyncio.wait_for(link.connected.wait(), wait_s)
            except TimeoutError:
                left_s -= wait_s
                tried.add(endpoint)
                # another call may have moved the link meanwhile
                if left_s <= 0.0 or (link.endpoint == endpoint and not link.move()) or link.endpoint in tried:
                    raise Unavailable(f"{endpoint}: no server answered within {wait_s:g} s{link.absence(endpoint)}") from None

    async def _whole(self, asked: public.AnswersWanted, options: dict[str, Any]) -> Answer:
        stream = _Stream(self._keyed(asked))
        async for _ in self._follow(stream, options):
            pass
        return stream.state.answer()

    async def _pieces(self, asked: public.AnswersWanted, options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        stream = _Stream(self._keyed(asked))
        async with aclosing(self._follow(stream, options)) as pieces:  # closing this generator closes the inner one
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
        stream.resend = lambda: link.resend(key)
        stream.confirm = lambda up_to: link.send_once(public.Received(request=key, up_to=up_to))
        self._streams[key] = stream
        try:
            link.open(key, stream)
            while True:
                while n_read < len(state.pieces):
                    n_read += 1
                    yield state.pieces[n_read - 1]
                if state.is_over:
                    break
                stream.changed.clear()
                await asyncio.wait_for(stream.changed.wait(), None if end_s == math.inf else max(0.0, end_s - now_s()))
        except TimeoutError:
            why = "" if link.is_connected else f"; there is no connection to {link.endpoint}"
            raise DeadlineExceeded(f"{key}: expected the end within {deadline_s:g} s{why}") from None
        finally:
            link.close_call(key)
            del self._streams[key]
            if not state.is_over and not self._is_closed:
                link.send_once(public.CancelRequest(request=key))
        state.answer()

    def _keyed(self, message: K) -> K:
        return message if self._api_key is None else msgspec.structs.replace(message, api_key=self._api_key)

    async def _ask(self, call: str, message: public.KeyedMessage, deadline_s: float) -> Message:
        end_s = asyncio.get_running_loop().time() + deadline_s
        link = await self._connected(deadline_s)
        question = _Question(self._keyed(message))
        try:
            link.open(call, question)
            answer = await asyncio.wait_for(question.answer, max(0.0, end_s - asyncio.get_running_loop().time()))
        except TimeoutError:
            raise Unavailable(f"{link.endpoint}: no answer within {deadline_s:g} s") from None
        finally:
            link.close_call(call)
        if isinstance(answer, public.Failed):
            raise error_of(answer)
        return answer

    def _confirm(self) -> None:
        for stream in self._streams.values():
            stream.confirm(stream.state.n_tokens)


class _Stream(OpenCall):
    """An open request on the link. The client sets `resend` and `confirm`."""

    def __init__(self, asked: public.AnswersWanted) -> None:
        self.key, self.state = asked.request, StreamState(asked)
        self.changed = asyncio.Event()
        self.resend = lambda: None
        self.confirm = lambda up_to: None
        self._confirmed = 0

    def message(self) -> Message:
        return self.state.asked()

    def moved(self) -> None:
        self.state.is_repeated = True

    def handle(self, message: public.GatewayMessage) -> None:
        match self.state.handle(message):
            case Next.RESEND:
                self.resend()
            case Next.RETRY:
                asyncio.get_running_loop().call_later(_RETRY_S, lambda: self.resend())
            case Next.PIECE | Next.END:
                self.changed.set()
        n_held = self.state.n_held
        if n_held - self._confirmed >= _CONFIRM_TOKENS or self.state.is_finished:
            self._confirmed = n_held
            self.confirm(n_held)


class _Question(OpenCall):
    """A call with one answer."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def message(self) -> Message:
        return self._message

    def handle(self, message: public.GatewayMessage) -> None:
        if not self.answer.done():
            self.answer.set_result(message)
