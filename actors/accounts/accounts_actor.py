"""The accounts actor: answers gateways at once with what a tenant may use, and writes down what they tell.

gateway --TakeAllowance--> ledger --AllowanceTaken--> gateway      before a request of a tenant with limits is accepted
gateway --UsageTold--> ledger --(file, once a second)--UsageNoted--> gateway      while it is computed, and when it is over
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from actors.accounts.account import Denied
from actors.accounts.account_figures import MOST_SHOWN, AccountMetrics, named
from actors.accounts.command_log import CommandLog, GatewayDied, Handled
from actors.accounts.ledger import Ledger
from actors.accounts.saved_accounts import encoded, handle, restore, write_accounts
from actors.accounts.settings import AccountsSettings
from actors.actor import Actor, Handler
from messages.access.allowances import AllowanceState, AllowanceTaken, TakeAllowance, UsageNoted, UsageTold
from messages.access.tenant_file import TenantBook
from messages.access.tenant_policy import SEQUENCES_OF, TODAY_OF
from messages.errors import MailboxFull, UnknownPeer
from messages.ids import role_of
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.mailbox import Delivery, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message


class AccountsActor(Actor):
    """The actor around a `Ledger`. `now_s`: the monotonic clock; `wall_s`: Unix time."""

    def __init__(
        self,
        spawn_spec: SpawnSpec,
        make_mailbox: MailboxFactory = ZmqMailbox,
        now_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(spawn_spec, make_mailbox)
        self._settings = settings = msgspec.json.decode(spawn_spec.settings, type=AccountsSettings)
        self._now_s, self._wall_s = now_s, wall_s
        self.ledger = Ledger(TenantBook(settings.tenants, Path(settings.tenants_file)))
        self.registry.register(AccountMetrics(self.ledger))
        # by gateway: its incarnation, and the newest number that it has told, if that is not on disk
        self._unnoted: dict[str, tuple[int, int]] = {}
        self._n_written, self._n_taken = 0, 0
        self._is_logged = self._is_written = True  # the newest record is in the log; the file could be written last time
        self._command_log = CommandLog(Path(settings.accounts_file))
        self._writing: asyncio.Task[None] | None = None

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {TakeAllowance: self.on_take_allowance, UsageTold: self.on_usage_told}

    async def start(self) -> dict[str, str]:
        """Go on with the accounts that the last incarnation has written."""
        path = Path(self._settings.accounts_file)
        if not restore(self.ledger, path, self._now_s(), self._wall_s()):
            self.log.error("accounts cannot be read: all of them begin with nothing used", file=str(path))
        logs = self._command_log.numbers()
        with suppress(OSError):  # then nothing is logged until the next file can be written
            self._command_log.begin(logs[-1] + 1 if logs else 1)
        return {"tenants": str(len(self.ledger.accounts))}

    async def stop(self) -> None:
        """Write what is not written yet."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._write()
        self._command_log.close()

    def on_take_allowance(self, delivery: Delivery, message: TakeAllowance) -> None:
        """A gateway wants to accept requests."""
        self._n_taken += 1
        taken = self._handle_now(delivery.sender, message)
        assert taken is not None, "a question has an answer"
        denied, state = taken
        answer = AllowanceTaken(call=message.call, state=state)
        if denied is not None:
            answer = AllowanceTaken(
                call=message.call,
                state=state,
                refused_by=denied.name,
                limit=denied.limit,
                needed=denied.needed,
                retry_after_s=denied.retry_after_s,
            )
        self._send_hint(delivery.sender, answer)

    def on_usage_told(self, delivery: Delivery, message: UsageTold) -> None:
        """A gateway tells what its requests have used."""
        self._handle_now(delivery.sender, message)
        if message.spent or message.listing:
            self._unnoted[delivery.sender] = (delivery.sender_incarnation, message.number)

    def peer_down(self, name: str, incarnation: int) -> None:
        if role_of(name) == "gateway":
            self._unnoted.pop(name, None)
            self._handle_now(name, GatewayDied())

    def tick(self) -> None:
        self.ledger.book.refresh()
        self.ledger.expire(self._now_s(), self._wall_s())
        if self._writing is None and (self._unnoted or self.ledger.n_changes != self._n_written):
            self._writing = asyncio.ensure_future(self._write())
            self._writing.add_done_callback(self._written)

    def progress(self) -> tuple[int, float]:
        return self._n_taken, 0.0

    def statistics(self) -> dict[str, float]:
        """Open sequences and tokens of today, of some tenants by name."""
        found = {"requests": float(sum(not request.is_over for request in self.ledger.requests.values()))}
        for tenant, n_sequences, n_tokens in named(self.ledger, MOST_SHOWN):
            found |= {SEQUENCES_OF + tenant: float(n_sequences), TODAY_OF + tenant: float(n_tokens)}
        return found

    def _handle_now(
        self, gateway: str, what: TakeAllowance | UsageTold | GatewayDied
    ) -> tuple[Denied | None, AllowanceState] | None:
        """Handle what has come, and note it. While the disk refuses that, it is only in memory until the file is written."""
        record = Handled(gateway, self._wall_s(), what)
        result = handle(self.ledger, record, self._now_s(), record.wall_s)
        try:
            self._command_log.append(record)
            self._is_logged = True
        except OSError as error:
            if self._is_logged:
                self.log.warning("what tenants use cannot be logged, and is in memory only", reason=str(error))
            self._is_logged = False
        return result

    async def _write(self) -> None:
        """Write all accounts, then confirm to gateways what was told before."""
        told, self._unnoted, n_changes = self._unnoted, {}, self.ledger.n_changes
        path = Path(self._settings.accounts_file)
        try:
            if n_changes != self._n_written:
                self._command_log.advance()
                number = self._command_log.number
                content = encoded(self.ledger, self._wall_s(), number)
                await asyncio.get_running_loop().run_in_executor(None, write_accounts, path, content)
                self._command_log.drop_before(number)
        except OSError as error:
            if self._is_written:
                self.log.warning("accounts could not be written, and will be as soon as they can", reason=str(error))
            self._is_written = False
            self._unnoted = told | self._unnoted
            return
        self._n_written, self._is_written = n_changes, True
        for gateway, (incarnation, number) in told.items():
            peer = self.child.peers.get(gateway)
            if peer is not None and peer.incarnation == incarnation:
                self._send_hint(gateway, UsageNoted(number=number))

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail("writing", error)

    def _send_hint(self, name: str, message: Message) -> None:
        """Send a message that may be lost: no gateway waits for it without a deadline."""
        try:
            self.send(name, message)
        except (MailboxFull, UnknownPeer):
            self.log.debug("a gateway cannot be told now", kind=type(message).__name__, gateway=name)


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of the accounts; returns the exit status."""
    return await AccountsActor(spawn_spec).run()
