"""One reader of one request: where it stands in each sequence, and what is new for it. Coalesces whatever has gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from actors.gateway.requests.order import Ended
from actors.gateway.requests.request import GrowingSequence, Request


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new of one sequence: tokens `first` .. `stop` - 1, their text, and the ending when it has come.

    `tail` is text that came with the ending and belongs to no token.
    """

    sequence: GrowingSequence
    first: int
    stop: int
    text: str
    tail: str = ""
    ended: Ended | None = None

    @property
    def ids(self) -> list[int]:
        """The new token ids."""
        return self.sequence.ids[self.first : self.stop]


class Reader:
    """Reads a request from token `have` on. `close` it, or it stays among the request's watchers."""

    def __init__(self, request: Request, have: int = 0, on_news: Callable[[], None] | None = None) -> None:
        self.request = request
        self.cursors = [have] * len(request.sequences)
        self._is_end_read = [False] * len(request.sequences)
        self._waiter: asyncio.Future[None] | None = None
        self._wants_end_only = False
        self._has_news = True
        self._is_silent = False
        self._silent_since_s = 0.0
        self._silence_timer: asyncio.TimerHandle | None = None
        self._on_news = on_news or self._wake
        self.has_left = False
        request.watchers.append(self._on_news)
        request.orphaned_s = 0.0

    @property
    def is_done(self) -> bool:
        """Everything up to the last ending has been taken."""
        return self.request.is_over and all(self._is_end_read)

    def take(self, limit: int = 1 << 60) -> list[Piece]:
        """All that is visible and new, one piece for each sequence that has any; at most `limit` tokens a sequence."""
        pieces = []
        for index, sequence in enumerate(self.request.sequences):
            first, stop = self.cursors[index], min(sequence.n_visible, self.cursors[index] + limit)
            has_end = sequence.is_end_visible and not self._is_end_read[index] and stop >= sequence.n_visible
            if stop <= first and not has_end:
                continue
            text = sequence.texts[first] if stop == first + 1 else "".join(sequence.texts[first:stop])
            self.cursors[index] = stop = max(stop, first)
            if has_end:
                self._is_end_read[index] = True
                pieces.append(Piece(sequence, first, stop, text, sequence.tail, sequence.ended))
            else:
                pieces.append(Piece(sequence, first, stop, text))
        return pieces

    async def wait_settled(self, longest_s: float) -> None:
        """Wait until the request's fate is known well enough for a status line, or for `longest_s` after it is recorded."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + longest_s
        timer = loop.call_at(until_s, self._wake)
        try:
            while not (self.request.is_settled or self.has_left):
                if self.request.is_recorded and loop.time() >= until_s:
                    break
                await self._wait()
        finally:
            timer.cancel()

    async def wait_pieces(self, longest_s: float) -> list[Piece]:
        """The next pieces; an empty list after `longest_s` without any, or when the reader's client has left."""
        loop = asyncio.get_running_loop()
        self._silent_since_s, self._is_silent = loop.time(), False
        while True:
            if self._has_news:
                self._has_news = False
                if pieces := self.take():
                    return pieces
            if self.has_left or self._is_silent:
                return []
            if self._silence_timer is None:
                self._silence_timer = loop.call_later(longest_s, self._look_for_silence, loop, longest_s)
            await self._wait()

    async def wait_end(self) -> None:
        """Until every sequence has ended or the client has left; bounded by the request's own deadline."""
        self._wants_end_only = True
        while not (self.request.is_over or self.has_left):
            await self._wait()

    def leave(self) -> None:
        """The client is gone: waiting ends."""
        self.has_left = True
        self._wake()

    def close(self) -> None:
        """Stop watching."""
        if self._on_news in self.request.watchers:
            self.request.watchers.remove(self._on_news)
        if self._silence_timer is not None:
            self._silence_timer.cancel()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _look_for_silence(self, loop: asyncio.AbstractEventLoop, longest_s: float) -> None:
        """One timer serves many waits: it looks how long the present one has lasted."""
        self._silence_timer = None
        if self._waiter is None:
            return
        left_s = self._silent_since_s + longest_s - loop.time()
        if left_s > 0.0:
            self._silence_timer = loop.call_later(left_s, self._look_for_silence, loop, longest_s)
        else:
            self._is_silent = True
            self._wake()

    def _wake(self) -> None:
        self._has_news = True
        if self._wants_end_only and not (self.request.is_over or self.has_left):
            return
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
