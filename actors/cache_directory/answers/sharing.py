"""Tells every gateway which answers the others keep, and a new gateway all that the directory has.

A gateway never asks: what it does not have it computes. Answers are sent a few at a time, so that a new gateway can serve
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from actors.pages.answers.answer_cache import AnswerCache
from messages.caches.equal import AnswersKept, KeptAnswer
from messages.wire.message import Message

_MOST_ANSWERS, _MOST_TOKENS = 64, 1 << 14  # in one message to one gateway
_PAUSE_S = 0.005  # until the next ones
_MOST_WAITING = 1 << 17  # answers for one gateway; the oldest of more are not sent


class AnswerSharing:
    """The gateways, and what each of them has not been told yet. `send`: returns False if a message cannot be sent now."""

    def __init__(self, cache: AnswerCache, send: Callable[[str, Message], bool]) -> None:
        self._cache, self._send = cache, send
        self._untold: dict[str, deque[bytes]] = {}  # keys, by gateway
        self._is_waiting = False
        self.n_used = 0  # answers that gateways have found and that are here

    @property
    def gateways(self) -> list[str]:
        """Names of the living ones."""
        return [*self._untold]

    def gateway_up(self, name: str) -> None:
        """A gateway has started: it is told everything."""
        self._untold[name] = deque((answer.key for answer in self._cache), _MOST_WAITING)
        self._tell_soon()

    def gateway_down(self, name: str) -> None:
        """A gateway has died."""
        self._untold.pop(name, None)

    def heard(self, sender: str, message: AnswersKept) -> None:
        """A gateway keeps answers, and has found some."""
        for key in message.used:
            self.n_used += self._cache.get(key) is not None
            self._cache.used(key)
        for answer in message.answers:
            if self._cache.keep(answer):
                self.tell(answer, but=sender)

    def tell(self, answer: KeptAnswer, but: str = "") -> None:
        """Tell the gateways of an answer, but for the one that it comes from."""
        for name, keys in self._untold.items():
            if name != but:
                keys.append(answer.key)
                self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            asyncio.get_running_loop().call_later(_PAUSE_S, self._tell_some)

    def _tell_some(self) -> None:
        self._is_waiting = False
        for name, keys in self._untold.items():
            answers = self._next(keys)
            if answers and not self._send(name, AnswersKept(answers=answers)):
                keys.extendleft(answer.key for answer in reversed(answers))
            if keys:
                self._tell_soon()

    def _next(self, keys: deque[bytes]) -> tuple[KeptAnswer, ...]:
        """Take the answers of one message. What is not kept any more is left out."""
        answers, n_tokens = [], 0
        while keys and len(answers) < _MOST_ANSWERS and n_tokens < _MOST_TOKENS:
            if (answer := self._cache.get(keys.popleft())) is not None:
                answers.append(answer)
                n_tokens += sum(len(sequence.ids) // 4 for sequence in answer.sequences)
        return tuple(answers)
