"""This gateway's questions to the accounts, and what it tells them.

ask     one round trip of at most 50 ms; while the accounts are dead or silent there is no answer
tell    at once what is over, four times a second what has grown, now and then a list of everything
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.tenants.open_allowances import OpenAllowances
from messages.access.allowances import AllowanceTaken, TakeAllowance, UsageNoted, UsageTold, WantedAllowance
from messages.ids import role_of

_ANSWER_S = 0.05  # longest wait for an answer
_SILENT_S = 1.0  # accounts that have not answered are not asked for this time
_TELL_EVERY_S = 0.25
_LIST_EVERY_S = 10.0
_ROLE = "accounts"


class AccountsLink:
    """The link of one gateway. `opened`: the requests that it tells of."""

    def __init__(self, post: Post, opened: OpenAllowances) -> None:
        self._post, self._opened = post, opened
        self._asked: dict[int, asyncio.Future[AllowanceTaken | None]] = {}
        self._n_calls = 0
        self._silent_until_s = self._listed_s = 0.0
        self._listed_to = -1  # the incarnation of the accounts that have a list
        self._is_ready = False  # this gateway has replayed its journal, so that it knows all of its requests
        self._is_waiting = self._is_flushing = False

    async def ask(self, tenant: str, wanted: Sequence[WantedAllowance]) -> AllowanceTaken | None:
        """What the accounts answer; None if they are not there or do not answer in time."""
        names = self._post.living(_ROLE)
        if not names or self._post.now_s() < self._silent_until_s:
            return None
        self.tell_overs()
        self._n_calls += 1
        call, answer = self._n_calls, asyncio.get_running_loop().create_future()
        self._asked[call] = answer
        try:
            if not send_now(self._post, names[0], TakeAllowance(call=call, tenant=tenant, wanted=[*wanted])):
                return None
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except TimeoutError:
            self._silent_until_s = self._post.now_s() + _SILENT_S
            return None
        finally:
            del self._asked[call]

    def answered(self, message: AllowanceTaken) -> None:
        """The accounts have answered a question."""
        self._silent_until_s = 0.0
        answer = self._asked.get(message.call)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def noted(self, message: UsageNoted) -> None:
        """The accounts have written down what they were told."""
        self._opened.noted(message.number)

    def ready(self) -> None:
        """All requests of the journal are known."""
        self._is_ready = True
        self._tell()

    def peer_up(self, name: str) -> None:
        """Another process is ready. New accounts get a list of everything."""
        if role_of(name) == _ROLE:
            self._silent_until_s = 0.0
            self._tell()

    def peer_down(self, name: str) -> None:
        """Another process is dead. Nobody waits for answers of dead accounts."""
        if role_of(name) == _ROLE:
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_result(None)

    def note_over(self) -> None:
        """A request is over: the accounts are told at the end of this turn, so that its place is free again."""
        if not self._is_flushing:
            self._is_flushing = True
            self._post.later(0.0, self._flush)

    def note_open(self) -> None:
        """A request was accepted: the accounts are told from time to time what it has used."""
        self._tell_later()

    def tell_overs(self) -> None:
        """Tell what is over."""
        if (name := self._listener()) and self._post.incarnation_of(name) == self._listed_to:
            self._send(name, self._opened.overs())

    def _flush(self) -> None:
        self._is_flushing = False
        self.tell_overs()
        self._tell_later()

    def _tell_later(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._post.later(_TELL_EVERY_S, self._tell_again)

    def _tell_again(self) -> None:
        self._is_waiting = False
        self._tell()

    def _tell(self) -> None:
        """Tell what is new, or everything; again after a while as long as there is anything to tell of."""
        if name := self._listener():
            incarnation, now_s = self._post.incarnation_of(name), self._post.now_s()
            if incarnation != self._listed_to or now_s >= self._listed_s + _LIST_EVERY_S:
                if self._send(name, self._opened.list_all()):
                    self._listed_to, self._listed_s = incarnation, now_s
            else:
                self._send(name, self._opened.news())
        if len(self._opened):
            self._tell_later()

    def _listener(self) -> str:
        names = self._post.living(_ROLE) if self._is_ready else []
        return names[0] if names else ""

    def _send(self, name: str, messages: Iterable[UsageTold]) -> bool:
        """Send them; returns False if one of them could not be sent. What is in it is told again."""
        is_sent = True
        for message in [*messages]:
            if not (is_sent and send_now(self._post, name, message)):
                is_sent = False
                self._opened.unsent(message)
        return is_sent
