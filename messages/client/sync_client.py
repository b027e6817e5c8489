"""`Client`: the client library without asyncio. It runs an `AsyncClient` on an event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from messages import public
from messages.client.answer import Answer, Piece
from messages.client.async_client import AsyncClient
from messages.client.options import documents_options
from messages.errors import Unavailable
from messages.run_dir import DEFAULT_PORT

_CLOSED = "the client was closed"
_MAX_TURNS = 100
_TURN_S = 0.5  # of a wait: after it a signal is noticed in any case
T = TypeVar("T")


class Client:
    """A client of one server, for any thread. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        endpoint: str | Sequence[str] | None = None,
        *,
        port: int = DEFAULT_PORT,
        api_key: str | None = None,
        server_key: str | None = None,
    ) -> None:
        """`endpoint`, `port`, `api_key`, `server_key`: as `AsyncClient`. Raises: ConfigError."""
        self._client = AsyncClient(endpoint, port=port, api_key=api_key, server_key=server_key)
        self.endpoint = self._client.endpoint
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tardigrade-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @documents_options
    def generate(self, prompt: str | Iterable[int], **options: Any) -> Answer:
        """The whole answer to a text or to token ids.

        Options: OPTIONS. `sampling` replaces the single sampling parameters; `messages.client.options.Options` has the types.
        Raises: ClientError.
        """
        return self._run(self._client.generate(prompt, **options))

    def chat(self, messages: Iterable[dict[str, Any]], **options: Any) -> Answer:
        """The whole answer to a conversation of {"role": ..., "content": ...}, as over HTTP, with calls of tools and results.

        Options: as `generate`. Raises: ClientError.
        """
        return self._run(self._client.chat(messages, **options))

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Iterable[int] | None = None,
        messages: Iterable[dict[str, Any]] | None = None,
        **options: Any,
    ) -> Iterator[Piece]:
        """The answer to exactly one of `prompt`, `tokens` and `messages`, piece by piece.

        Breaking out of the iteration cancels the request. Options: as `generate`. Raises: ClientError.
        """
        return self._pieces(self._client.stream(prompt, tokens=tokens, messages=messages, **options))

    def cancel(self, request: str) -> None:
        """End a request of this client; its stream ends with reason "cancelled"."""
        self._run(self._client.cancel(request))

    def embed(self, texts: Sequence[str] | Sequence[Sequence[int]], **options: Any) -> np.ndarray:
        """The vectors of texts, or of lists of token ids: see `AsyncClient.embed`. Raises: ClientError."""
        return self._run(self._client.embed(texts, **options))

    def models(self, deadline_s: float = 10.0) -> list[str]:
        """The names of the served models. Raises: ClientError."""
        return self._run(self._client.models(deadline_s))

    def stats(self, deadline_s: float = 10.0) -> dict[str, Any]:
        """The summary of the gateway that answers, the same as /v1/metrics; `gateway` names it. Raises: ClientError."""
        return self._run(self._client.stats(deadline_s))

    def reset_cache(self, **conditions: Any) -> public.CachesReset:
        """Let the server forget cached prefixes and kept answers: see `AsyncClient.reset_cache`. Raises: ClientError."""
        return self._run(self._client.reset_cache(**conditions))

    def run(self, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """What `work` returns for the client of this one's event loop: calls that run together. Raises: as `work` does."""
        return self._run(work(self._client))

    def close(self) -> None:
        """Close the connection and end the thread. Calls of other threads end with Unavailable."""
        if not self._is_closed and self._thread.is_alive():
            self._is_closed = True
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _pieces(self, pieces: AsyncGenerator[Piece, None]) -> Iterator[Piece]:
        try:
            while (piece := self._run(_next(pieces))) is not None:
                yield piece
        finally:
            if not self._is_closed and self._thread.is_alive():
                self._run(_close(pieces))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_closed or not self._thread.is_alive():
            work.close()
            raise Unavailable(_CLOSED if self._is_closed else "the client was made before this fork")
        call = _CancellableCall(work)
        running = call.run()
        try:
            return _result(self._hand_over(running), self._thread)
        except CancelledError:
            raise Unavailable(_CLOSED) from None
        except BaseException:  # Ctrl-C: the result is not wanted any more
            with suppress(RuntimeError):  # another thread has closed the loop
                self._loop.call_soon_threadsafe(call.cancel)
            if not self._thread.is_alive():  # nobody runs them now
                running.close()
                work.close()
            raise

    def _hand_over(self, running: Coroutine[Any, Any, T]) -> Future[T]:
        """Let the loop run this. Raises: Unavailable if another thread has closed the loop just now."""
        try:
            return asyncio.run_coroutine_threadsafe(running, self._loop)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            raise Unavailable(_CLOSED) from None


class _CancellableCall:
    """A call that can be cancelled at once: Ctrl-C may come before the caller has the future of what it has started."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work, self._is_cancelled = work, False
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> Any:
        """What the coroutine returns. Raises: CancelledError if `cancel` came first."""
        self._task = asyncio.current_task()
        if self._is_cancelled:
            self._work.close()
            raise asyncio.CancelledError
        return await self._work

    def cancel(self) -> None:
        """Cancel the work, also if it has not begun yet. To be called on the loop."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()


def _result(future: Future[T], thread: threading.Thread) -> T:
    """What the future of this thread gives, or raises. It is waited for in short turns, because Python notices a signal that
    comes in the moment before a wait begins only when that wait is over: one Ctrl-C would be lost.

    Raises: Unavailable if the thread has ended without it."""
    while True:
        has_ended = not thread.is_alive()
        try:
            return future.result(_TURN_S)
        except TimeoutError:
            if future.done():  # by its own TimeoutError, or just now
                return future.result()
            if has_ended:  # its client was closed just before the call could begin
                raise Unavailable(_CLOSED) from None


async def _next(pieces: AsyncGenerator[Piece, None]) -> Piece | None:
    return await anext(pieces, None)


async def _close(pieces: AsyncGenerator[Piece, None]) -> None:
    """Close a generator. `aclose` fails while a cancelled step of the generator still runs, so it is tried again."""
    for _ in range(_MAX_TURNS):
        try:
            return await pieces.aclose()
        except RuntimeError:
            await asyncio.sleep(0)
