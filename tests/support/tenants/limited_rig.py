"""A gateway with API keys of two tenants, of which one has limits, and real accounts beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.accounts.accounts_actor import AccountsActor
from actors.accounts.settings import AccountsSettings
from actors.gateway.tenants import accounts_link
from messages.access.api_key import Role, new_key
from messages.access.key_file import change_keys
from messages.access.tenant_policy import TenantPolicy
from messages.transport.mailbox import MemoryMailbox
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.memory_cluster import spawn_spec_of

_PATIENCE = ("_KNOWN_S", "_UNKNOWN_S")  # how long a gateway waits for its accounts


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a gateway decides alone when its accounts do not answer at once."""
    for name in _PATIENCE:
        monkeypatch.setattr(accounts_link, name, 0.01)


class LimitedRig:
    """`me`, `admin`: headers with keys of the tenant with limits, and of another one whose key is an admin's."""

    def __init__(self, r: Rig, folder: Path, key: str, admin_key: str, policies: dict[str, TenantPolicy]) -> None:
        self.rig, self.folder, self.key, self._policies = r, folder, key, policies
        self.me, self.admin = ({"Authorization": f"Bearer {one}"} for one in (key, admin_key))
        self.accounts: AccountsActor

    async def start_accounts(self, incarnation: int = 1) -> None:
        """Start the accounts, or a new incarnation of them, and wait until the gateway knows them."""
        cluster, name = self.rig.cluster, "accounts/0"
        cluster.incarnation_of[name] = incarnation
        settings = AccountsSettings(
            tenants=self._policies, tenants_file=str(self.folder / "tenants.json"), accounts_file=str(self.folder / "accounts")
        )
        spec = spawn_spec_of(name, settings, incarnation)
        self.accounts = AccountsActor(spec, lambda n, i, e: MemoryMailbox(cluster.network, n, i, e))
        cluster.actors[name] = (self.accounts, asyncio.ensure_future(self.accounts.run()))
        await cluster.wait_until(lambda: self.rig.gateway.incarnation_of(name) == incarnation)

    async def kill_accounts(self) -> None:
        """End the accounts as kill -9 does."""
        await self.rig.cluster.kill("accounts/0")

    @property
    def used_today(self) -> int:
        """Tokens that the accounts have counted for the tenant with limits."""
        account = self.accounts.ledger.accounts.get("me")
        return 0 if account is None else account.used_today

    async def wait_used(self, n_tokens: int) -> None:
        """Wait until the accounts have counted so many, and no sequence is open."""
        await self.rig.cluster.wait_until(
            lambda: self.used_today == n_tokens and not self.accounts.ledger.accounts["me"].n_sequences
        )

    def http(self) -> httpx.AsyncClient:
        """An HTTP client of the tenant with limits."""
        client = self.rig.http()
        client.headers.update(self.me)
        return client


@asynccontextmanager
async def limited_rig(
    folder: Path, monkeypatch: pytest.MonkeyPatch, policy: TenantPolicy, **settings: Any
) -> AsyncIterator[LimitedRig]:
    """A running gateway with accounts. They have a minute to answer, because test machines are busy; see `be_impatient`."""
    for name in _PATIENCE:
        monkeypatch.setattr(accounts_link, name, 60.0)
    key, mine = new_key("me", Role.USER, 1.0)
    admin_key, other = new_key("other", Role.ADMIN, 1.0)
    keys_file, policies = folder / "api-keys.json", {"me": policy}
    change_keys(keys_file, lambda keys: [mine, other])
    files = {"keys_file": str(keys_file), "tenants_file": str(folder / "tenants.json")}
    async with rig(**files, tenants=policies, **settings) as r:
        limited = LimitedRig(r, folder, key, admin_key, policies)
        await limited.start_accounts()
        yield limited
