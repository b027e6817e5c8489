"""Simulated servers with tenants: every client belongs to one with limits, and the accounts must agree with the gateways.

gateway asks or tells ---> accounts ---> file in the state directory      deaths at each of these edges
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from actors.accounts.accounts_actor import AccountsActor
from actors.gateway.access.key_ring import KeyHolder, KeyRing
from actors.gateway.admission.caller import caller_of_tenant
from actors.gateway.requests.request import Request
from actors.gateway.settings import GatewaySettings
from actors.gateway.tenants.open_allowances import tokens_of
from actors.gateway.tenants.tenant_limits import TenantLimits
from messages.access.api_key import Role
from messages.access.tenant_policy import TenantPolicy
from supervisor.config.server_config import ServerConfig
from tests.support.simulation.edges import Fault

TENANT = "sim"
TENANTS = {TENANT: TenantPolicy(requests_per_min=10**6, tokens_per_min=10**8, max_sequences=4096, tokens_per_day=10**9)}
_FAULTS = (Fault.DIES_BEFORE, Fault.DIES_AFTER, Fault.STOPS_AFTER)
_KINDS = ("TakeAllowance", "AllowanceTaken", "UsageTold", "UsageNoted")
_BY_ACCOUNTS = ("AllowanceTaken", "UsageNoted")


def _pairs() -> Iterator[tuple[str, Fault]]:
    for kind in _KINDS:
        sender, receiver = ("accounts", "gateway") if kind in _BY_ACCOUNTS else ("gateway", "accounts")
        yield from ((edge, fault) for edge in (f"{sender} sends {kind}", f"{receiver} gets {kind}") for fault in _FAULTS)


PAIRS = tuple(_pairs())
OF_ACCOUNTS = tuple(pair for pair in PAIRS if pair[0].startswith("accounts"))


class TenantCheck:
    """What the requests of a run have used, as gateways know it, beside what the accounts have counted."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}  # of requests that are over, by id

    def watch(self, patch: Callable[[Any, str, Any], None]) -> None:
        """Every caller is a client of the tenant, and needs no key. `patch(object, name, value)` must undo itself."""
        holder = KeyHolder("0" * 12, TENANT, caller_of_tenant(TENANT), Role.ADMIN)
        patch(KeyRing, "known", lambda ring, text: holder)
        patch(KeyRing, "tenant_of", lambda ring, caller: TENANT)
        patch(GatewaySettings, "names_callers", False)  # pages have the names that the check of adoptions knows
        over, tokens = TenantLimits.over, self._tokens

        def noted(limits: TenantLimits, request: Request) -> None:
            tokens[request.spec.request] = tokens_of(request)
            over(limits, request)

        patch(TenantLimits, "over", noted)

    def problems(self, actors: Sequence[AccountsActor], *, is_exact: bool) -> list[str]:
        """What is wrong after the last request. `is_exact`: no gateway has died, so not a token may be missing."""
        found, expected = list[str](), sum(self._tokens.values())
        for actor in actors:
            account = actor.ledger.accounts.get(TENANT)
            if account is None:
                return [] if not self._tokens else ["the accounts have not counted anything"]
            if account.n_sequences or account.held_tokens:
                found.append(f"{account.n_sequences} sequences and {account.held_tokens} tokens are set aside for nobody")
            if is_exact and account.used_today != expected:
                found.append(f"tokens of the tenant: expected {expected}, got {account.used_today}")
        return found


def with_tenants(config: ServerConfig) -> ServerConfig:
    """The same server with the tenant to which all clients belong."""
    return msgspec.structs.replace(config, api_keys=True, tenants=TENANTS)


def are_settled(actors: Sequence[AccountsActor]) -> bool:
    """No request is open."""
    return not any(account.n_sequences for actor in actors for account in actor.ledger.accounts.values())
