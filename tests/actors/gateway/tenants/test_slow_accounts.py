"""Accounts that are slow, dead, or not there yet: no gateway allows what was used up, and none waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from messages.access.tenant_policy import TenantPolicy
from tests.support.simulation.virtual_loop import VirtualLoop
from tests.support.tenants.slow_accounts import SlowAccounts

DAY = TenantPolicy(tokens_per_day=140)  # twenty calls of seven tokens
MINUTE = TenantPolicy(requests_per_min=40)


def run(folder: Path, scenario: Callable[[SlowAccounts], Awaitable[None]], policy: TenantPolicy, delay_s: float) -> None:
    """Run a scenario with four gateways, in virtual time."""

    async def whole() -> None:
        await scenario(SlowAccounts(folder, policy, delay_s, 4))

    loop = VirtualLoop()
    try:
        loop.run_until_complete(whole())
    finally:
        loop.close()


@pytest.mark.parametrize("delay_s", [0.001, 0.2, 1.5])
def test_a_limit_holds_exactly_however_late_the_answers_come(delay_s: float, tmp_path: Path) -> None:
    async def scenario(accounts: SlowAccounts) -> None:
        accounts.start()
        assert (await accounts.ask_many(60)).count("") == 20
        accounts.die()
        accounts.restart_gateways()
        asyncio.get_running_loop().call_later(4.0, accounts.start)  # gateways are there first, and know nothing
        assert await accounts.ask_many(60) == ["insufficient_quota"] * 60
        assert accounts.ledger.accounts["acme"].used_today == 140

    run(tmp_path, scenario, DAY, delay_s)


def test_the_tokens_of_a_day_that_nobody_knows_are_not_given_out(tmp_path: Path) -> None:
    async def scenario(accounts: SlowAccounts) -> None:
        began_s = asyncio.get_running_loop().time()
        assert await accounts.ask_many(8) == ["unavailable"] * 8
        assert asyncio.get_running_loop().time() == pytest.approx(began_s + 10.0)
        assert await accounts.ask_many(8) == ["unavailable"] * 8
        assert asyncio.get_running_loop().time() == pytest.approx(began_s + 10.0), "nobody waits for those that are long dead"
        accounts.start()
        assert (await accounts.ask_many(8)).count("") == 8

    run(tmp_path, scenario, DAY, 0.01)


def test_limits_of_a_minute_are_given_out_in_parts_when_nobody_knows_them_for_long(tmp_path: Path) -> None:
    async def scenario(accounts: SlowAccounts) -> None:
        assert (await accounts.ask_many(60)).count("") == 40
        await asyncio.sleep(60.0)
        assert (await accounts.ask_many(60)).count("") == 40

    run(tmp_path, scenario, MINUTE, 0.01)


def test_dead_accounts_are_waited_for_and_asked_again(tmp_path: Path) -> None:
    async def scenario(accounts: SlowAccounts) -> None:
        accounts.start()
        assert (await accounts.ask_many(8)).count("") == 8
        asyncio.get_running_loop().call_later(0.05, accounts.die)  # before it has answered
        asyncio.get_running_loop().call_later(2.0, accounts.start)
        assert (await accounts.ask_many(60)).count("") == 12
        assert accounts.ledger.accounts["acme"].used_today == 140

    run(tmp_path, scenario, DAY, 0.1)


def test_gateways_decide_from_what_they_have_heard_when_accounts_stay_away(tmp_path: Path) -> None:
    async def scenario(accounts: SlowAccounts) -> None:
        accounts.start()
        assert (await accounts.ask_many(8)).count("") == 8
        await asyncio.gather(*(accounts.ask(number, 0) for number in range(4)))  # now all have heard the same
        accounts.die()
        began_s = asyncio.get_running_loop().time()
        assert (await accounts.ask_many(60)).count("") == 12
        assert asyncio.get_running_loop().time() == pytest.approx(began_s + 3.0)

    run(tmp_path, scenario, DAY, 0.01)


def test_accounts_that_say_nothing_are_asked_once_a_second_and_nobody_waits(tmp_path: Path) -> None:
    async def scenario(accounts: SlowAccounts) -> None:
        accounts.start()
        assert (await accounts.ask_many(4)).count("") == 4
        loop, accounts.is_deaf = asyncio.get_running_loop(), True
        began_s = loop.time()
        assert await accounts.ask(0) == ""
        assert loop.time() == pytest.approx(began_s + 3.0)
        for n_probes in range(1, 4):
            accounts.n_asked, began_s = 0, loop.time()
            for _ in range(40):
                await accounts.ask(0, 0)
            assert loop.time() == began_s
            await asyncio.sleep(1.0)
            assert accounts.n_asked == 1, n_probes
        accounts.is_deaf = False
        await accounts.ask(0, 0)
        await asyncio.sleep(1.0)
        began_s = loop.time()
        assert await accounts.ask(0) == ""
        assert loop.time() == pytest.approx(began_s + 0.01), "they are back, and waited for"

    run(tmp_path, scenario, DAY, 0.01)


def test_a_request_that_was_refused_late_is_not_counted(tmp_path: Path) -> None:
    """Gateways tell four times a second of what they have, also of requests that wait for their answer."""

    async def scenario(accounts: SlowAccounts) -> None:
        accounts.start()
        for limits in accounts.gateways:
            limits.link.note_open()
        assert (await accounts.ask_many(8)).count("") == 2
        await asyncio.sleep(1.0)
        account = accounts.ledger.accounts["acme"]
        assert (account.used_today, account.n_sequences, account.held_tokens) == (14, 0, 0)

    run(tmp_path, scenario, TenantPolicy(tokens_per_day=20), 0.4)
