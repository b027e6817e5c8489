"""The sync client: the async one on a loop in a thread of its own. `messages.client` is the door to it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from messages.client_async import DEFAULT_ACCEPT_S, DEFAULT_DEADLINE_S, AsyncClient, TokenStream
from messages.client_stream import Answer, Piece
from messages.run_dir import DEFAULT_PORT

T = TypeVar("T")


class SyncStream:
    """An iterator of pieces; `answer()` is the whole."""

    def __init__(self, client: Client, stream: TokenStream) -> None:
        self._client, self._stream = client, stream

    @property
    def request(self) -> str:
        """The request's id."""
        return self._stream.request

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        piece = self._client._wait(_next(self._stream))
        if piece is None:
            raise StopIteration
        return piece

    def cancel(self) -> None:
        """The answer is not wanted any more."""
        self._client._wait(self._stream.cancel())

    def answer(self) -> Answer:
        """Read what is left and give the whole answer."""
        return self._client._wait(self._stream.answer())

    def close(self) -> None:
        """Leave the stream; an unfinished request is cancelled."""
        self._client._wait(self._stream.aclose())


async def _next(stream: TokenStream) -> Piece | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None


class Client:
    """A client of one server, for programs without a loop; methods, arguments and errors as in `AsyncClient`.

    with Client() as client:
        print(client.chat("Who are you?").text)
    """

    def __init__(self, endpoint: str = "", *, port: int = DEFAULT_PORT, accept_s: float = DEFAULT_ACCEPT_S) -> None:
        self._client = AsyncClient(endpoint, port=port, accept_s=accept_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tardigrade-client", daemon=True)
        self._thread.start()
        self._is_closed = False

    @property
    def endpoint(self) -> str:
        """Where the server's front is."""
        return self._client.endpoint

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread."""
        if not self._is_closed:
            self._is_closed = True
            asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Iterable[int] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        deadline_s: float = DEFAULT_DEADLINE_S,
        **options: Any,
    ) -> SyncStream:
        """See `AsyncClient.stream`."""

        async def begin() -> TokenStream:
            return self._client.stream(prompt, tokens=tokens, messages=messages, deadline_s=deadline_s, **options)

        return SyncStream(self, self._wait(begin()))

    def generate(self, prompt: str | None = None, **options: Any) -> Answer:
        """See `AsyncClient.generate`."""
        return self._wait(self._client.generate(prompt, **options))

    def chat(self, messages: Sequence[Mapping[str, Any]] | str, **options: Any) -> Answer:
        """See `AsyncClient.chat`."""
        return self._wait(self._client.chat(messages, **options))

    def cancel(self, request: str) -> None:
        """See `AsyncClient.cancel`."""
        self._wait(self._client.cancel(request))

    def models(self, **options: Any) -> list[str]:
        """See `AsyncClient.models`."""
        return self._wait(self._client.models(**options))

    def stats(self, **options: Any) -> dict[str, Any]:
        """See `AsyncClient.stats`."""
        return self._wait(self._client.stats(**options))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            work.close()
            raise RuntimeError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except (KeyboardInterrupt, concurrent.futures.CancelledError):
            future.cancel()
            raise
