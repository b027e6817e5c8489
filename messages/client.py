"""The client library over ZeroMQ: `Client` for ordinary code, `AsyncClient` for asyncio. Imports neither torch nor the server.

    with Client() as client:                       # the server on port 8000 of this machine
        print(client.generate("Hello", max_tokens=16).text)

A stream survives the death of any process of the server, the gateway included: the client says its request again under the same
id and goes on at the next token. That is why the seed is chosen here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, TypedDict, TypeVar

import msgspec
import numpy as np

from messages import public
from messages.arrays import EMPTY_I32, int32s
from messages.client_link import ClientLink
from messages.client_stream import Answer, Next, Piece, StreamState, error_of
from messages.faults import DeadlineExceeded, InvalidRequest, Unavailable
from messages.generation import Sampling
from messages.ids import mint_request_id, mint_seed
from messages.message import Message
from messages.public import ChatTurn
from messages.run_dir import DEFAULT_PORT, front_endpoint, run_dir_of

CONNECT_S = 5.0
DEADLINE_S = 600.0
_CONFIRM_TOKENS = 64
T = TypeVar("T")


class Options(TypedDict, total=False):
    """What every generating call takes besides its prompt."""

    request: str  # the idempotency key; chosen at random unless given
    max_tokens: int  # default: to the end of the context
    temperature: float
    top_p: float
    top_k: int
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logprobs: int  # the chosen token's and the top n; -1: none
    sampling: Sampling  # instead of the eight fields above
    stop: list[str]
    stop_tokens: list[int]
    ignore_eos: bool
    model: str
    deadline_s: float


class AsyncClient:
    """Talks to one server. Use it as an async context manager, on one event loop."""

    def __init__(self, endpoint: str | None = None, *, port: int = DEFAULT_PORT) -> None:
        """`endpoint`: "ipc://..." or "tcp://..."; without one, the server on this HTTP port of this machine."""
        self.endpoint = endpoint or front_endpoint(run_dir_of(port))
        self._link: ClientLink | None = None
        self._streams: dict[str, _Stream] = {}

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        await self.close()

    async def generate(self, prompt: str | Iterable[int], **options: Any) -> Answer:
        """The whole answer to a text or to token ids. Options: see `Options`. Raises: ClientError."""
        return await self._whole(_generate(prompt, None, options), options)

    async def chat(self, messages: Iterable[dict[str, str]], **options: Any) -> Answer:
        """The whole answer to a conversation of {"role": ..., "content": ...}. Raises: ClientError."""
        return await self._whole(_generate(None, messages, options), options)

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Iterable[int] | None = None,
        messages: Iterable[dict[str, str]] | None = None,
        **options: Any,
    ) -> AsyncIterator[Piece]:
        """The answer piece by piece. Leaving the loop early cancels the request. Raises: ClientError."""
        return self._pieces(_generate(prompt if tokens is None else tokens, messages, options), options)

    async def cancel(self, request: str) -> None:
        """End a request of this client; its stream ends with reason "cancelled"."""
        (await self._connected()).hint(public.CancelRequest(request=request))

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
        """Close the connection; open streams end with Unavailable."""
        for stream in self._streams.values():
            stream.state.error = Unavailable("the client was closed")
            stream.news.set()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _connected(self) -> ClientLink:
        link = self._link
        if link is None:
            link = self._link = ClientLink(self.endpoint, self._confirm)
        if not link.has_connected:
            try:
                await asyncio.wait_for(link.connected.wait(), CONNECT_S)
            except TimeoutError:
                raise Unavailable(f"{self.endpoint}: no server answered within {CONNECT_S:g} s") from None
        return link

    async def _whole(self, generate: public.Generate, options: dict[str, Any]) -> Answer:
        stream = _Stream(generate)
        async for _ in self._follow(stream, options):
            pass
        return stream.state.answer()

    async def _pieces(self, generate: public.Generate, options: dict[str, Any]) -> AsyncIterator[Piece]:
        stream = _Stream(generate)
        async for piece in self._follow(stream, options):
            yield piece

    async def _follow(self, stream: _Stream, options: dict[str, Any]) -> AsyncIterator[Piece]:
        deadline_s = float(options.get("deadline_s", DEADLINE_S))
        link = await self._connected()
        key, state, n_read = stream.key, stream.state, 0
        if key in self._streams:
            raise InvalidRequest(f"expected an id that is not in use by this client, got {key!r}", "request")
        stream.say_again = lambda: link.say_again(key)
        stream.confirm = lambda up_to: link.hint(public.Received(request=key, up_to=up_to))
        self._streams[key] = stream
        link.open(key, stream)
        end_s = asyncio.get_running_loop().time() + deadline_s
        try:
            while True:
                while n_read < len(state.pieces):
                    n_read += 1
                    yield state.pieces[n_read - 1]
                if state.is_over:
                    break
                stream.news.clear()
                await asyncio.wait_for(stream.news.wait(), max(0.0, end_s - asyncio.get_running_loop().time()))
        except TimeoutError:
            raise DeadlineExceeded(f"{key}: expected the end within {deadline_s:g} s") from None
        finally:
            link.close_call(key)
            del self._streams[key]
            if not state.is_over and self._link is not None:
                link.hint(public.CancelRequest(request=key))
        state.answer()

    async def _ask(self, call: str, words: Message, deadline_s: float) -> Message:
        link = await self._connected()
        question = _Question(words)
        link.open(call, question)
        try:
            message = await asyncio.wait_for(question.answer, deadline_s)
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


class Client:
    """The same without asyncio: a thread of its own runs an `AsyncClient`. Use it as a context manager, or call `close`."""

    def __init__(self, endpoint: str | None = None, *, port: int = DEFAULT_PORT) -> None:
        """See `AsyncClient`."""
        self._client = AsyncClient(endpoint, port=port)
        self.endpoint = self._client.endpoint
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tardigrade-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def generate(self, prompt: str | Iterable[int], **options: Any) -> Answer:
        """See `AsyncClient.generate`."""
        return self._run(self._client.generate(prompt, **options))

    def chat(self, messages: Iterable[dict[str, str]], **options: Any) -> Answer:
        """See `AsyncClient.chat`."""
        return self._run(self._client.chat(messages, **options))

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Iterable[int] | None = None,
        messages: Iterable[dict[str, str]] | None = None,
        **options: Any,
    ) -> Iterator[Piece]:
        """See `AsyncClient.stream`."""
        pieces = self._client.stream(prompt, tokens=tokens, messages=messages, **options)
        try:
            while True:
                piece = self._run(_next(pieces))
                if piece is None:
                    return
                yield piece
        finally:
            self._run(pieces.aclose())  # pyright: ignore[reportAttributeAccessIssue]

    def cancel(self, request: str) -> None:
        """See `AsyncClient.cancel`."""
        self._run(self._client.cancel(request))

    def models(self, deadline_s: float = 10.0) -> list[str]:
        """See `AsyncClient.models`."""
        return self._run(self._client.models(deadline_s))

    def stats(self, deadline_s: float = 10.0) -> dict[str, Any]:
        """See `AsyncClient.stats`."""
        return self._run(self._client.stats(deadline_s))

    def close(self) -> None:
        """Close the connection and end the thread."""
        if self._thread.is_alive():
            self._run(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next(pieces: AsyncIterator[Piece]) -> Piece | None:
    return await anext(pieces, None)


def _generate(
    prompt: str | Iterable[int] | None, messages: Iterable[dict[str, str]] | None, options: dict[str, Any]
) -> public.Generate:
    """The request of a call. Raises: InvalidRequest naming the option."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidRequest(f"expected one of {', '.join(sorted(Options.__annotations__))}, got {name}", name)
    fields: dict[str, Any] = {"request": mint_request_id(), "sampling": _sampling(options)}
    fields |= {k: options[k] for k in ("request", "max_tokens", "stop", "stop_tokens", "ignore_eos", "model") if k in options}
    if isinstance(prompt, str):
        fields["prompt"] = prompt
    elif prompt is not None:
        fields["tokens"] = int32s(prompt if isinstance(prompt, np.ndarray) else list(prompt))
    if messages is not None:
        fields["turns"] = [ChatTurn(role=turn["role"], content=turn["content"]) for turn in messages]
    if prompt is None and messages is None:
        fields["tokens"] = EMPTY_I32
    return public.Generate(**fields)


def _sampling(options: dict[str, Any]) -> Sampling:
    if "sampling" in options:
        return options["sampling"]
    fields = {name: options[name] for name in Sampling.__struct_fields__ if name in options}
    return Sampling(**{"seed": mint_seed(), **fields})
