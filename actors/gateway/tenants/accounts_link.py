"""This gateway's questions to the accounts, and what it tells them.

ask     one round trip. Accounts that are dead or slow are waited for: what a gateway decides alone may exceed a limit
tell    at once what is over; four times a second what has grown, of a part of the requests; now and then a list of everything
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.tenants.open_allowances import OpenAllowances
from messages.access.allowances import AllowanceTaken, TakeAllowance, UsageNoted, UsageTold, WantedAllowance
from messages.ids import role_of

# how long the accounts may say nothing, alive or dead, until this gateway decides alone: one that is killed or stopped is back
# before. Of a tenant of which they have said nothing so far this gateway knows nothing, so it waits longer
_KNOWN_S, _UNKNOWN_S = 3.0, 10.0
_AGAIN_S = 1.0  # accounts that have said nothing for longer are asked so often, and nobody waits for that
_RETRY_S = 0.05  # after a question could not be sent
_TELL_EVERY_S = 0.25
_LIST_EVERY_S = 10.0
_ROLE = "accounts"


class AccountsLink:
    """The link of one gateway. `opened`: the requests that it tells of."""

    def __init__(self, post: Post, opened: OpenAllowances) -> None:
        self._post, self._opened = post, opened
        self._asked: dict[int, asyncio.Future[AllowanceTaken | None]] = {}
        self._n_calls = 0
        # since when the accounts are dead, or have not answered: from the start on, until they are ready
        self._quiet_since_s: float | None = post.now_s()
        self._probed_s = self._listed_s = 0.0
        self._listed_to = -1  # the incarnation of the accounts that have a list
        self._is_ready = False  # this gateway has replayed its journal, so that it knows all of its requests
        self._is_waiting = self._is_flushing = False

    async def ask(self, tenant: str, wanted: Sequence[WantedAllowance], *, is_known: bool) -> AllowanceTaken | None:
        """What the accounts answer; None if they are not there or do not answer in time. `is_known`: they have told before
        what this tenant has left. The question is repeated if they die: they know requests by their ids."""
        began_s = self._post.now_s()
        since_s = began_s if self._quiet_since_s is None else self._quiet_since_s
        until_s = since_s + (_KNOWN_S if is_known else _UNKNOWN_S)
        while (left_s := until_s - self._post.now_s()) > 0.0:
            if (answer := await self._try(tenant, wanted, left_s)) is not None:
                return answer
        if self._quiet_since_s is None:
            self._quiet_since_s = began_s
        self._probe(tenant, wanted)
        return None

    async def _try(self, tenant: str, wanted: Sequence[WantedAllowance], longest_s: float) -> AllowanceTaken | None:
        """The answer of the present accounts; None when they die, when the next ones are ready, or after this time."""
        self._n_calls += 1
        call, answer = self._n_calls, asyncio.get_running_loop().create_future()
        self._asked[call] = answer
        try:
            is_lost = bool(self._post.living(_ROLE)) and not self._send_question(call, tenant, wanted)
            async with asyncio.timeout(min(longest_s, _RETRY_S) if is_lost else longest_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._asked[call]

    def _probe(self, tenant: str, wanted: Sequence[WantedAllowance]) -> None:
        """Ask from time to time, so that an answer shows that the accounts are back. Nobody waits for it."""
        now_s = self._post.now_s()
        if now_s >= self._probed_s + _AGAIN_S:
            self._probed_s, self._n_calls = now_s, self._n_calls + 1
            self._send_question(self._n_calls, tenant, wanted)

    def _send_question(self, call: int, tenant: str, wanted: Sequence[WantedAllowance]) -> bool:
        """Returns False if it cannot be sent now."""
        names = self._post.living(_ROLE)
        if not names:
            return False
        self.tell_overs()
        return send_now(self._post, names[0], TakeAllowance(call=call, tenant=tenant, wanted=[*wanted]))

    def answered(self, message: AllowanceTaken) -> None:
        """The accounts have answered a question."""
        self._quiet_since_s = None
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
        """Another process is ready. New accounts get a list of everything, and are asked what the last ones did not answer."""
        if role_of(name) == _ROLE:
            self._quiet_since_s = None
            self._tell()
            self._try_again()

    def peer_down(self, name: str) -> None:
        """Another process is dead. What dead accounts were asked, the next ones are asked."""
        if role_of(name) == _ROLE:
            if self._quiet_since_s is None:
                self._quiet_since_s = self._post.now_s()
            self._try_again()

    def _try_again(self) -> None:
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
