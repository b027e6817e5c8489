"""Asks the schedulers to forget pages. Each is asked again until it answers, because it may die before it has obeyed, and its
next incarnation takes over what is left in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.requests.refusals import Refusal
from actors.pages.forgetting import Forgetting
from messages.cache import ForgetPages, PagesForgotten
from messages.ids import actor_name

_AGAIN_S = 0.5
_LONGEST_S = 20.0
_MOST_OPEN = 16


@dataclass
class _OpenCall:
    message: ForgetPages
    missing: set[str]  # schedulers that have not answered
    done: asyncio.Future[None]
    n_pages: int = 0

    def end(self) -> None:
        """All have answered, or the time is over."""
        if not self.done.done():
            self.done.set_result(None)


class PageResets:
    """The open calls of one gateway. `n_schedulers`: of the server; more are asked if they live."""

    def __init__(self, post: Post, n_schedulers: int) -> None:
        self._post, self._n_schedulers = post, n_schedulers
        self._open: dict[int, _OpenCall] = {}
        self._next_call = 1

    async def forget(self, wanted: Forgetting) -> int:
        """Returns how many pages all schedulers have forgotten. Raises: Refusal naming those that have not answered in time."""
        if len(self._open) >= _MOST_OPEN:
            raise Refusal("overloaded", f"{len(self._open)} resets of caches are under way", retry_after_s=1.0)
        number, self._next_call = self._next_call, self._next_call + 1
        tokens = np.frombuffer(wanted.tokens, "<i4")
        message = ForgetPages(call=number, scope=wanted.scope, tokens=tokens, older_than_s=wanted.older_than_s)
        call = _OpenCall(message, set(self._schedulers()), asyncio.get_running_loop().create_future())
        self._open[number] = call
        self._ask(number, self._schedulers())
        timer = self._post.later(_LONGEST_S, call.end)
        try:
            await call.done
        finally:
            timer.cancel()
            del self._open[number]
        if call.missing:
            who = ", ".join(sorted(call.missing))
            detail = f"{who} did not answer within {_LONGEST_S:g} s; the other schedulers have forgotten {call.n_pages} pages"
            raise Refusal("unavailable", detail, retry_after_s=_LONGEST_S)
        return call.n_pages

    def answered(self, scheduler: str, message: PagesForgotten) -> None:
        """A scheduler has answered, perhaps for the second time."""
        call = self._open.get(int(message.call))
        if call is None or scheduler not in call.missing:
            return
        call.missing.discard(scheduler)
        call.n_pages += int(message.pages)
        if not call.missing:
            call.end()

    def _schedulers(self) -> Sequence[str]:
        return sorted(
            {actor_name("scheduler", index) for index in range(self._n_schedulers)} | {*self._post.living("scheduler")}
        )

    def _ask(self, number: int, names: Sequence[str]) -> None:
        """Ask those that have not answered, now and again after a while."""
        call = self._open.get(number)
        if call is None:
            return
        if not call.missing:  # the server has no scheduler at all
            call.end()
            return
        for name in names:
            if name in call.missing:
                send_now(self._post, name, call.message)
        self._post.later(_AGAIN_S, lambda: self._ask(number, names))
