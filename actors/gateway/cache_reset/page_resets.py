"""Asks the schedulers to forget pages, and the cache directory to forget answers. Each is asked again
until it answers, because it may die before it has obeyed, and its next incarnation takes over what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.requests.refusals import Refusal
from actors.pages.forgetting import Forgetting
from messages.caches.equal import AnswersForgotten, ForgetAnswers
from messages.caches.prefixes import ForgetPages, PagesForgotten
from messages.ids import REPLICAS_OF_A_MODEL, actor_name, model_of

_AGAIN_S = 0.5
_LONGEST_S = 20.0
_MOST_OPEN = 16
_DIRECTORY = actor_name("cache_directory", 0)


@dataclass
class _OpenCall:
    pages: ForgetPages
    answers: ForgetAnswers
    missing: set[str]  # actors that have not answered
    done: asyncio.Future[None]
    n_pages: int = 0
    n_equal: int = 0
    n_similar: int = 0

    def end(self) -> None:
        """All have answered, or the time is over."""
        if not self.done.done():
            self.done.set_result(None)


class PageResets:
    """The open calls of one gateway. `n_schedulers`: of the server; more are asked if they live. `has_answers`: the directory
    keeps answers."""

    def __init__(self, post: Post, n_schedulers: int, *, has_answers: bool = False) -> None:
        self._post, self._n_schedulers, self._has_answers = post, n_schedulers, has_answers
        self._open: dict[int, _OpenCall] = {}
        self._next_call = 1

    async def forget(self, wanted: Forgetting) -> tuple[int, int, int]:
        """Returns how many pages all schedulers, or those of `wanted.model`, have forgotten, and how many answers the
        directory: for equal requests, and for similar questions. Raises: Refusal naming those that have not answered in
        time."""
        if len(self._open) >= _MOST_OPEN:
            what = f"at most {_MOST_OPEN} that are under way"
            detail = f"resets of caches: expected {what}, got {len(self._open) + 1}"
            raise Refusal("overloaded", detail, retry_after_s=1.0, limit=f"cache_resets={_MOST_OPEN}")
        number, self._next_call = self._next_call, self._next_call + 1
        tokens = np.frombuffer(wanted.tokens, "<i4")
        names, done = self._names(wanted.model), asyncio.get_running_loop().create_future()
        pages = ForgetPages(call=number, scope=wanted.scope, tokens=tokens, older_than_s=wanted.older_than_s)
        model = -1 if wanted.model is None else wanted.model
        answers = ForgetAnswers(call=number, scope=wanted.scope, tokens=tokens, older_than_s=wanted.older_than_s, model=model)
        self._open[number] = call = _OpenCall(pages, answers, set(names), done)
        self._ask(number, names)
        timer = self._post.later(_LONGEST_S, call.end)
        try:
            await call.done
        finally:
            timer.cancel()
            del self._open[number]
        if call.missing:
            who = ", ".join(sorted(call.missing))
            detail = f"{who} did not answer within {_LONGEST_S:g} s; the others have forgotten {call.n_pages} pages"
            raise Refusal("unavailable", detail, retry_after_s=_LONGEST_S)
        return call.n_pages, call.n_equal, call.n_similar

    def answered(self, scheduler: str, message: PagesForgotten) -> None:
        """A scheduler has answered, perhaps for the second time."""
        if (call := self._settled(message.call, scheduler)) is not None:
            call.n_pages += int(message.pages)

    def answers_forgotten(self, directory: str, message: AnswersForgotten) -> None:
        """The directory has answered, perhaps for the second time."""
        if (call := self._settled(message.call, directory)) is not None:
            call.n_equal += int(message.equal)
            call.n_similar += int(message.similar)

    def _settled(self, number: int, name: str) -> _OpenCall | None:
        """The open call of this number, if this is the first answer of an actor to it."""
        call = self._open.get(number)
        if call is None or name not in call.missing:
            return None
        call.missing.discard(name)
        if not call.missing:
            call.end()
        return call

    def _names(self, model: int | None) -> Sequence[str]:
        """Those to ask. model: the number of the model that is to forget; None: all models."""
        n_expected, first = (1, model * REPLICAS_OF_A_MODEL) if model else (self._n_schedulers, 0)
        schedulers = {actor_name("scheduler", first + index) for index in range(n_expected)}
        directories = [_DIRECTORY] if self._has_answers else []
        living = {name for name in self._post.living("scheduler") if model is None or model_of(name) == model}
        return [*sorted(schedulers | living), *directories]

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
                send_now(self._post, name, call.answers if name == _DIRECTORY else call.pages)
        self._post.later(_AGAIN_S, lambda: self._ask(number, names))
