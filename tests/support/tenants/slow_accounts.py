"""Gateways' limits beside accounts that answer late, die and come back, in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from actors.accounts.ledger import Ledger
from actors.gateway.dispatch.post import Post
from actors.gateway.requests.refusals import Refusal
from actors.gateway.tenants.tenant_limits import TenantLimits
from actors.gateway.tenants.tenant_usage import TenantUsage
from messages.access.allowances import AllowanceTaken, TakeAllowance, UsageTold
from messages.access.tenant_file import TenantBook
from messages.access.tenant_policy import TenantPolicy
from messages.wire.message import NO_TRACE, Message

ACCOUNTS = "accounts/0"
CALLER = b"acme"


class SlowAccounts:
    """The accounts of some gateways. `delay_s`: from a message to what it does; `n_gateways` share the limits of one tenant."""

    def __init__(self, folder: Path, policy: TenantPolicy, delay_s: float, n_gateways: int) -> None:
        self.book, self.delay_s = TenantBook({"acme": policy}, folder / "tenants.json"), delay_s
        self.ledger, self.incarnation, self.is_up = Ledger(self.book), 0, False
        self.n_asked, self.is_deaf = 0, False
        self.gateways = [self._gateway(number, n_gateways) for number in range(n_gateways)]

    def start(self) -> None:
        """The accounts are ready, with what they know."""
        self.incarnation, self.is_up = self.incarnation + 1, True
        for limits in self.gateways:
            limits.link.peer_up(ACCOUNTS)

    def die(self) -> None:
        """They die, and everything that is on its way to them is lost."""
        self.is_up = False
        for limits in self.gateways:
            limits.link.peer_down(ACCOUNTS)

    def restart_gateways(self) -> None:
        """New processes, which have heard nothing of any tenant."""
        self.gateways = [self._gateway(number, len(self.gateways)) for number in range(len(self.gateways))]

    async def ask(self, number: int, n_tokens: int = 7) -> str:
        """A call for vectors at one gateway; returns "" or why it was refused."""
        try:
            await self.gateways[number % len(self.gateways)].take_tokens(CALLER, n_tokens)
        except Refusal as refusal:
            return refusal.fine_code or refusal.code
        return ""

    async def ask_many(self, n: int) -> list[str]:
        """So many at the same time, at all gateways."""
        return await asyncio.gather(*(self.ask(number) for number in range(n)))

    def _gateway(self, number: int, n_gateways: int) -> TenantLimits:
        usage, post = TenantUsage(CollectorRegistry()), _Post(self, number)
        limits = TenantLimits(self.book, bytes.decode, post, n_gateways, usage)
        limits.resumed([])
        return limits

    def handle(self, number: int, message: Message, incarnation: int) -> None:
        """A message of a gateway arrives."""
        if not self.is_up or incarnation != self.incarnation:
            return
        now_s = asyncio.get_running_loop().time()
        self.n_asked += isinstance(message, TakeAllowance)
        if self.is_deaf:
            return
        if isinstance(message, UsageTold):
            self.ledger.tell(f"gateway/{number}", message, now_s, now_s)
        elif isinstance(message, TakeAllowance):
            denied, state = self.ledger.take(f"gateway/{number}", message.tenant, message.wanted, now_s, now_s)
            answer = AllowanceTaken(call=message.call, state=state)
            if denied is not None:
                name, limit, needed, wait_s = denied.name, denied.limit, denied.needed, denied.retry_after_s
                answer = AllowanceTaken(message.call, state, name, limit, needed, wait_s)
            self.gateways[number].link.answered(answer)


class _Post(Post):
    """What a gateway has. Its messages arrive in order, each after the delay."""

    def __init__(self, accounts: SlowAccounts, number: int) -> None:
        self._accounts, self._number = accounts, number
        self._on_their_way: deque[tuple[int, Message, int]] = deque()  # timers of the same moment come in any order

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        self._on_their_way.append((self._number, message, self._accounts.incarnation))
        asyncio.get_running_loop().call_later(self._accounts.delay_s, self._arrive)

    def _arrive(self) -> None:
        self._accounts.handle(*self._on_their_way.popleft())

    def living(self, role: str) -> list[str]:
        return [ACCOUNTS] if self._accounts.is_up and role == "accounts" else []

    def incarnation_of(self, name: str) -> int:
        return self._accounts.incarnation if self._accounts.is_up else -1

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_s(self) -> float:
        return self.now_s()

    def later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback)
