"""A reader of one request: it remembers how much it has read of each sequence, and returns what is new as one delta."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from actors.gateway.lasting_waits import LASTING_S, LastingWaits
from actors.gateway.requests.best_of import n_shown, shown_answers
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended


class _Awaits(Enum):
    """What a reader waits for."""

    UPDATE = "update"
    SETTLED = "settled"
    END = "end"


class Delta(msgspec.Struct, frozen=True):
    """What is new of one answer: tokens `first` .. `stop` - 1, their text, and the ending if it is visible.

    `tail`: text that became visible with the ending and belongs to no token.
    """

    index: int  # of the answer, as its client counts them
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
    """Reads the answers to a request that its client sees. `on_update` is called when more may be visible; without it, use
    `wait_...`.

    `have`: of each answer, the number of tokens that need not be read; 0 for those that are missing at its end. `lasting`:
    tells which waits have lasted a second; without it, each has a timer of its own. Call `close` at the end: it removes the
    reader from the request's watchers.
    """

    def __init__(
        self,
        request: Request,
        have: Sequence[int] = (),
        on_update: Callable[[], None] | None = None,
        lasting: LastingWaits | None = None,
    ) -> None:
        self.request = request
        n_answers = n_shown(request.spec)
        self.cursors = [*have, *[0] * (n_answers - len(have))]
        self._is_end_read = [False] * n_answers
        self._answers: Sequence[GrowingSequence] = () if request.spec.best_of is not None else request.sequences
        self._waiter: asyncio.Future[None] | None = None
        self._awaits = _Awaits.UPDATE
        self._has_update = True
        self._limit_s = 0.0  # when the present wait has lasted long enough, on the event loop's clock
        self._is_late = False  # it has
        self._timer: asyncio.TimerHandle | None = None
        self._lasting = lasting
        self._is_short = False  # the wait is among `lasting`, and has no timer
        self._take_now: Callable[[], bool] | None = None  # of the present wait, whose length is `_longest_s`
        self._longest_s, self._now_s = 0.0, _nothing_s
        self._on_update = on_update or self._wake
        self.has_left = False
        request.watchers.append(self._on_update)
        request.orphaned_s = 0.0

    @property
    def is_done(self) -> bool:
        """True if the request is over and `take` has returned every ending."""
        return self.request.is_over and all(self._is_end_read)

    def take(self, limit: int = 1 << 60) -> list[Delta]:
        """Everything visible that was not read yet: one delta of at most `limit` tokens for each answer with news."""
        if not self._answers and self.request.is_over:  # which ones are the best is known now
            self._answers = shown_answers(self.request)
        deltas, has_answer = [], self.request.spec.has_answer
        for index, sequence in enumerate(self._answers):
            n_visible = sequence.n_visible if has_answer else 0
            first, stop = self.cursors[index], min(n_visible, self.cursors[index] + limit)
            has_end = sequence.is_end_visible and not self._is_end_read[index] and stop >= n_visible
            if stop <= first and not has_end:
                continue
            text = sequence.texts[first] if stop == first + 1 else "".join(sequence.texts[first:stop])
            self.cursors[index] = stop = max(stop, first)
            if has_end:
                self._is_end_read[index] = True
                deltas.append(Delta(index, sequence, first, stop, text, sequence.tail if has_answer else "", sequence.ended))
            else:
                deltas.append(Delta(index, sequence, first, stop, text))
        return deltas

    async def wait_settled(self, longest_s: float) -> None:
        """Wait until the request `is_settled`. Give up after `longest_s`, but never before it is recorded."""
        self._awaits, loop = _Awaits.SETTLED, asyncio.get_running_loop()
        self._limit(loop, longest_s)
        while not self._has_come():
            await self._wakes(loop)
        self._awaits = _Awaits.UPDATE

    async def wait_update(self, longest_s: float, take_now: Callable[[], bool] | None = None) -> bool:
        """Wait until more may be visible. Returns False after `longest_s` without news, or when the client has left.

        `take_now`: called in place of an end of the wait when more may be visible. It takes what is new, and the wait begins
        anew: no task is woken, which would take as long as the rest of what a token needs. False: it has taken nothing.
        """
        if not (self._has_update or self.has_left):
            loop = asyncio.get_running_loop()
            self._limit(loop, longest_s)
            self._take_now, self._longest_s, self._now_s = take_now, longest_s, loop.time
            await self._wakes(loop)
            self._take_now = None
        has_update, self._has_update = self._has_update, False
        return has_update and not self.has_left

    async def wait_end(self) -> None:
        """Wait until every sequence has ended or the client has left. The request's own deadline bounds the wait."""
        self._awaits = _Awaits.END
        while not self._has_come():
            await self._wakes(asyncio.get_running_loop())

    def leave(self) -> None:
        """The client has left: every wait returns."""
        self.has_left = True
        self._wake()

    def close(self) -> None:
        """Remove this reader from the request's watchers."""
        if self._on_update in self.request.watchers:
            self.request.watchers.remove(self._on_update)
            self.request.on_unwatched(self.request)
        self._cancel()
        # they refer to this reader: without them it is freed at once
        self._on_update, self._take_now = _nothing, None

    def _wakes(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future that is done when the present wait may be over."""
        self._waiter = loop.create_future()
        return self._waiter

    def _limit(self, loop: asyncio.AbstractEventLoop, longest_s: float) -> None:
        """The present wait lasts at most `longest_s`. One timer serves many waits, because timers cost time."""
        self._limit_s, self._is_late = loop.time() + longest_s, False
        if self._is_short and longest_s >= LASTING_S:
            return
        if self._is_short or (self._timer is not None and self._timer.when() > self._limit_s):
            self._cancel()
        if self._timer is None and self._lasting is not None and longest_s >= LASTING_S:
            self._is_short = True
            self._lasting.add(self, self._check_time)
        elif self._timer is None:
            self._timer = loop.call_at(self._limit_s, self._check_time)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_short and self._lasting is not None:
            self._lasting.remove(self)
        self._timer, self._is_short = None, False

    def _check_time(self) -> None:
        """End the present wait if it has lasted long enough."""
        loop = asyncio.get_running_loop()
        self._timer, self._is_short = None, False
        if loop.time() < self._limit_s:
            self._timer = loop.call_at(self._limit_s, self._check_time)
        else:
            self._is_late = True
            self._wake_waiter()

    def _wake(self) -> None:
        take_now, waiter = self._take_now, self._waiter
        if take_now is not None and waiter is not None and not (waiter.done() or self.has_left) and take_now():
            self._limit_s = self._now_s() + self._longest_s
            return
        self._has_update = True
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done() and self._has_come():
            self._waiter.set_result(None)

    def _has_come(self) -> bool:
        """True if the wait is over. Checked before the task is woken, because a needless wake-up costs 10 us."""
        request = self.request
        if self._awaits is _Awaits.UPDATE or self.has_left or request.is_over:
            return True
        if self._awaits is _Awaits.END:
            return False
        return request.is_settled or (self._is_late and request.is_recorded)


def _nothing_s() -> float:
    """In place of a clock before the first wait."""
    return 0.0


def _nothing() -> None:
    """In place of a callback of a closed reader."""
