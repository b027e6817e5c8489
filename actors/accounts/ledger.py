"""All accounts, and the requests that are open on them or not yet settled. Pure: the clocks are given.

A request is known by its id at its gateway. What a gateway tells of it is counted from its beginning, so each message replaces
what was known. A request that is over is remembered until its gateway knows that this is on disk: then it does not tell of it
any more, and its id may be that of a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.accounts.account import DAY_S, Denied, Need, TenantAccount
from messages.access.allowances import AllowanceState, SpentAllowance, UsageTold, WantedAllowance
from messages.access.tenant_file import TenantBook

ABANDONED_S = 120.0  # the requests of a gateway that tells nothing for this time after its death are over
_MOST_ACCOUNTS = 65_536  # unused ones of more tenants are forgotten


class OpenRequest(msgspec.Struct):
    """One request. `set_aside`: tokens taken from the bucket for it; `counted`: tokens that it has used so far. `is_left`: its
    gateway has not come back, so it is over; it goes on if the gateway does after all. `is_accepted`: it has told so."""

    gateway: str
    tenant: str
    sequences: int
    most_tokens: int
    set_aside: int
    counted: int
    is_over: bool = False
    is_left: bool = False
    is_accepted: bool = False
    told: int = 0  # the newest message that it was in
    listing: int = 0  # the newest listing that it was in

    @property
    def held(self) -> int:
        """Tokens that it may still use."""
        return 0 if self.is_over else max(self.most_tokens - self.counted, 0)


class Ledger:
    """The accounts of all tenants with limits."""

    def __init__(self, book: TenantBook) -> None:
        self.book = book
        self.accounts: dict[str, TenantAccount] = {}
        self.requests: dict[str, OpenRequest] = {}  # by key: see `_key_of`
        self.n_changes = 0
        self._listing: dict[str, int] = {}  # by gateway: the list of its requests that is being told, or the last one
        self._gone: dict[str, float] = {}  # by gateway that is dead: since when
        self._day = 0  # of Unix time, at the last `expire`; 0: there was none

    def take(
        self, gateway: str, tenant: str, wanted: Sequence[WantedAllowance], now_s: float, wall_s: float
    ) -> tuple[Denied | None, AllowanceState]:
        """Set aside what these requests need, of all or of none; returns the limit that forbids it, and what is left."""
        account = self.account(tenant, now_s, wall_s)
        keys = {one.request: self._key_of(gateway, tenant, one.request, is_new=True) for one in wanted}
        new = [one for one in wanted if not self._is_open(keys[one.request])]  # the others were taken by an earlier copy
        need = Need(
            len(new),
            sum(one.sequences for one in new),
            sum(one.prompt_tokens for one in new),
            sum(one.prompt_tokens + one.output_tokens for one in new),
        )
        denied = account.denied(need, wall_s) if new else None
        if denied is None and new:
            self.n_changes += 1
            left = account.take(need)
            for one in new:
                most = one.prompt_tokens + one.output_tokens
                set_aside = min(most, left)
                left -= set_aside
                request = OpenRequest(gateway, tenant, one.sequences, most, set_aside, 0)
                self.requests[keys[one.request]] = request
                request.listing = self._listing.get(gateway, 0)
                self._count(account, request, one.prompt_tokens)
        return denied, account.state()

    def tell(self, gateway: str, message: UsageTold, now_s: float, wall_s: float) -> None:
        """Take what a gateway tells of its requests."""
        self._gone.pop(gateway, None)
        if message.listing:
            self._listing[gateway] = message.listing
        for spent in message.spent:
            self._spent(gateway, spent, message, now_s, wall_s)
        self.n_changes += bool(message.spent)
        if message.listing and message.is_last:
            for name, request in [*self.requests.items()]:
                if request.gateway == gateway and request.listing != message.listing:
                    self._end(name, request, now_s, wall_s)
        if message.noted and (message.is_last or not message.listing):  # before the last part, not all of them are told anew
            done = [n for n, r in self.requests.items() if r.is_over and r.gateway == gateway and r.told <= message.noted]
            for name in done:
                del self.requests[name]

    def gateway_down(self, gateway: str, now_s: float) -> None:
        """A gateway is dead. Its successor tells which of its requests go on."""
        self._gone[gateway] = now_s
        self._listing.pop(gateway, None)
        for request in self.requests.values():
            if request.gateway == gateway:
                request.told = request.listing = 0  # the successor counts from the beginning

    def expire(self, now_s: float, wall_s: float) -> None:
        """End the requests of gateways that have not come back, and forget accounts that say nothing any more."""
        for gateway in [name for name, since_s in self._gone.items() if now_s - since_s >= ABANDONED_S]:
            del self._gone[gateway]
            for request in self.requests.values():
                if request.gateway == gateway:
                    if not request.is_over:
                        self._close(self.account(request.tenant, now_s, wall_s), request)
                    request.is_left = True
            self.n_changes += 1
        if (day := int(wall_s // DAY_S)) != self._day:
            self._begin_day(day, wall_s)
        if len(self.accounts) > _MOST_ACCOUNTS:
            known = {request.tenant for request in self.requests.values()}
            unused = [name for name, one in self.accounts.items() if not one.used_today and name not in known]
            for name in unused[: len(self.accounts) - _MOST_ACCOUNTS]:
                del self.accounts[name]

    def account(self, tenant: str, now_s: float, wall_s: float) -> TenantAccount:
        """The account of a tenant as it is now."""
        policy, account = self.book.policy_of(tenant), self.accounts.get(tenant)
        if account is None:
            account = self.accounts[tenant] = TenantAccount(policy, now_s, wall_s)
        else:
            account.refresh(policy, now_s, wall_s)
        return account

    def restored(self, now_s: float) -> None:
        """All requests are those of an earlier run of the accounts. Their gateways must tell of them in time."""
        self._listing.clear()
        for request in self.requests.values():
            request.told = request.listing = 0
            self._gone[request.gateway] = now_s

    def _begin_day(self, day: int, wall_s: float) -> None:
        """What was used before counts no more, and neither does what gateways have left behind that are not back by then."""
        for account in self.accounts.values():
            account.begin_day(wall_s)
        if self._day:
            self.requests = {key: one for key, one in self.requests.items() if not one.is_left}
        self._day = day

    def _key_of(self, gateway: str, tenant: str, request_id: str, *, is_new: bool) -> str:
        """The key of a request: its id, unless a request of another tenant or gateway has this key, because clients choose ids.
        `is_new`: False: it may be one of a dead gateway whose journal this gateway has, and then it goes on."""
        own = f"{request_id}\n{gateway}\n{tenant}"
        other = self.requests.get(request_id)
        if other is None or own in self.requests:
            return own if own in self.requests else request_id
        is_adopted = not is_new and (other.is_left or other.gateway in self._gone)
        goes_on = is_adopted or other.gateway == gateway
        return request_id if goes_on and other.tenant == tenant else own

    def _is_open(self, key: str) -> bool:
        request = self.requests.get(key)
        return request is not None and not request.is_over

    def _spent(self, gateway: str, spent: SpentAllowance, message: UsageTold, now_s: float, wall_s: float) -> None:
        key = self._key_of(gateway, spent.tenant, spent.request, is_new=False)
        account, request = self.account(spent.tenant, now_s, wall_s), self.requests.get(key)
        if request is None and (spent.is_recovered or (spent.is_over and not spent.tokens)):
            return  # it was settled before, or it was never accepted
        if request is None:  # its gateway has decided alone, or what was taken for it was lost
            request = OpenRequest(gateway, spent.tenant, spent.sequences, spent.most_tokens, 0, 0)
            self.requests[key] = request
            account.requests.take(1)
            account.n_sequences += spent.sequences
            account.held_tokens += spent.most_tokens
        request.gateway, request.told = gateway, message.number
        request.is_accepted = request.is_accepted or spent.is_over or not spent.is_recovered
        request.listing = message.listing or self._listing.get(gateway, 0)
        if request.is_left:
            self._go_on(account, request)
        if request.is_over:
            return
        self._count(account, request, spent.tokens)
        if spent.is_over:
            self._close(account, request)
            if not spent.tokens:  # it was never accepted
                account.requests.give(1)

    def _count(self, account: TenantAccount, request: OpenRequest, tokens: int) -> None:
        """Count what a request has used from its beginning. What was not set aside for it is taken now."""
        held, over = request.held, max(request.counted - request.set_aside, 0)
        change, request.counted = tokens - request.counted, tokens
        account.use(change, request.held - held)
        beyond = max(tokens - request.set_aside, 0) - over
        if beyond > 0:
            account.tokens.take(beyond)
        elif beyond < 0:
            account.tokens.give(-beyond)

    def _close(self, account: TenantAccount, request: OpenRequest) -> None:
        """It uses nothing more: what is set aside for it comes back."""
        account.use(0, -request.held)
        account.tokens.give(max(request.set_aside - request.counted, 0))
        account.n_sequences = max(account.n_sequences - request.sequences, 0)
        request.is_over = True

    def _go_on(self, account: TenantAccount, request: OpenRequest) -> None:
        """Its gateway has come back after all: what was closed is open again."""
        request.is_over = request.is_left = False
        request.set_aside = min(request.set_aside, request.counted)
        account.n_sequences += request.sequences
        account.use(0, request.held)

    def _end(self, name: str, request: OpenRequest, now_s: float, wall_s: float) -> None:
        """Nobody tells of this request any more. If nobody ever did, its gateway died before it could accept it: then it has
        used nothing, and its client asks again."""
        if not request.is_over:
            account = self.account(request.tenant, now_s, wall_s)
            if not request.is_accepted:
                self._count(account, request, 0)
                account.requests.give(1)
            self._close(account, request)
        del self.requests[name]
        self.n_changes += 1
