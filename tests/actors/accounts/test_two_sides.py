"""Gateways and the accounts together, under random arrivals, deaths of both, and clock jumps: what is counted is what was used.

The links deliver in order and lose nothing between two living processes, as those of the mailboxes do; a death loses what is on
its way to the dead one.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from actors.accounts.command_log import CommandLog, GatewayDied, Handled
from actors.accounts.ledger import Ledger
from actors.accounts.saved_accounts import encoded, handle, restore
from actors.gateway.tenants.open_allowances import OpenAllowance, OpenAllowances
from messages.access.allowances import TakeAllowance, UsageTold, WantedAllowance
from messages.access.tenant_file import TenantBook
from messages.access.tenant_policy import TenantPolicy
from tests.support.depth import at_depth

POLICY = TenantPolicy(requests_per_min=600, tokens_per_min=20_000, max_sequences=12, tokens_per_day=10**9)
MOST = 40  # tokens of one request


class World:
    """Three gateways, the accounts and their file, and the clients, who know what they have got."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance, self.path = random.Random(seed), folder / "accounts"
        self.book = TenantBook({"acme": POLICY}, folder / "tenants.json")
        self.now_s, self.wall_s = 0.0, 1.8e9
        self.ledger = Ledger(self.book)
        self.log = CommandLog(self.path)
        self.log.begin(1)
        self.gateways = [OpenAllowances() for _ in range(3)]
        self.unnoted: dict[int, int] = {}
        self.ended: list[tuple[int, str, int]] = []  # gateway, id and tokens of the newest requests that are over: the journal
        self.streams: dict[str, tuple[int, OpenAllowance]] = {}  # requests that run: their gateway and what it knows of them
        self.n_got = self.n_requests = 0

    def tell(self, number: int, kind: str) -> None:
        """A gateway tells what the kind says."""
        for message in getattr(self.gateways[number], kind)():
            self.handle(number, message)
            self.unnoted[number] = message.number

    def arrives(self) -> None:
        """A client asks one of the gateways."""
        number, name = self.chance.randrange(3), f"r{self.n_requests}"
        self.n_requests += 1
        gateway, n_prompt = self.gateways[number], self.chance.randrange(1, 20)
        one = OpenAllowance(name, "acme", 1, n_prompt, MOST)
        gateway.begin(one)
        self.tell(number, "overs")
        asked = WantedAllowance(request=name, sequences=1, prompt_tokens=n_prompt, output_tokens=MOST - n_prompt)
        taken = self.handle(number, TakeAllowance(call=1, tenant="acme", wanted=[asked]))
        assert taken is not None
        if taken[0] is not None:
            gateway.drop(one)
        elif self.chance.random() < 0.1:  # the client has left before it was accepted
            gateway.end(one, 0)
            self.tell(number, "overs")
        else:
            self.streams[name] = (number, one)

    def grows(self) -> None:
        """A request gets tokens, or is over."""
        if self.streams:
            name = self.chance.choice([*self.streams])
            number, one = self.streams[name]
            one.tokens += self.chance.randrange(0, MOST - one.tokens + 1)
            if self.chance.random() < 0.4:
                del self.streams[name]
                self.n_got += one.tokens
                self.gateways[number].end(one, one.tokens)
                self.ended.append((number, name, one.tokens))
                if self.chance.random() < 0.7:  # otherwise it has no time left for that
                    self.tell(number, "overs")

    def handle(self, number: int, what: TakeAllowance | UsageTold | GatewayDied) -> Any:
        """The accounts handle what comes from a gateway, or its death."""
        record = Handled(f"gateway/{number}", self.wall_s, what)
        self.log.append(record)
        return handle(self.ledger, record, self.now_s, self.wall_s)

    def writes(self) -> None:
        """The accounts write their file, and confirm what they were told."""
        self.log.begin(self.log.number + 1)
        self.path.write_bytes(encoded(self.ledger, self.wall_s, self.log.number))
        self.log.drop_before(self.log.number)
        for number, told in self.unnoted.items():
            self.gateways[number].noted(told)
        self.unnoted = {}

    def accounts_die(self) -> None:
        """The next accounts read the file, and every gateway lists what it has."""
        self.unnoted = {}
        self.ledger = Ledger(self.book)
        if self.chance.random() < 0.5:  # in the middle of a write
            self.log.begin(self.log.number + 1)
        assert restore(self.ledger, self.path, self.now_s, self.wall_s)
        for number in range(3):
            self.tell(number, "list_all")

    def gateway_dies(self) -> None:
        """Its successor has the requests of the journal, also those that were over not long ago."""
        number = self.chance.randrange(3)
        self.handle(number, GatewayDied())
        self.unnoted.pop(number, None)
        successor = self.gateways[number] = OpenAllowances()
        for name, (at, one) in [*self.streams.items()]:
            if at == number:
                resumed = OpenAllowance(name, "acme", 1, one.tokens, MOST)
                successor.begin(resumed)
                self.streams[name] = (number, resumed)
        for at, name, tokens in self.ended[-100:]:
            if at == number:
                one = OpenAllowance(name, "acme", 1, tokens, MOST)
                successor.begin(one)
                one.is_recovered = True
                successor.end(one, tokens)
        self.tell(number, "list_all")

    def jumps(self) -> None:
        """The wall clock jumps, within its day."""
        self.wall_s = 1.8e9 + self.chance.uniform(0.0, 3600.0)

    def check(self) -> None:
        """Nothing is negative, and what is set aside is what open requests may still use."""
        account = self.ledger.account("acme", self.now_s, self.wall_s)
        for number in (account.requests.left, account.tokens.left, account.requests.owed, account.tokens.owed):
            assert number >= 0.0
        open_ones = [one for one in self.ledger.requests.values() if not one.is_over]
        assert account.n_sequences == len(open_ones) <= POLICY.max_sequences
        assert account.held_tokens == sum(one.held for one in open_ones)
        assert all(len(gateway) < 200 for gateway in self.gateways), "what is on disk is forgotten"


@pytest.mark.parametrize("seed", range(at_depth(30)))
def test_what_is_counted_is_what_clients_have_got(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    steps = (
        *((world.arrives, world.grows, world.grows) * 6),
        *(lambda number=number: world.tell(number, "news") for number in range(3)),
        *(lambda number=number: world.tell(number, "list_all") for number in range(3)),
        *(world.writes, world.writes, world.accounts_die, world.gateway_dies, world.jumps),
    )
    for _ in range(600):
        world.now_s += world.chance.expovariate(20.0)
        world.chance.choice(steps)()
        world.check()
    for number in range(3):
        world.tell(number, "list_all")
    account = world.ledger.account("acme", world.now_s, world.wall_s)
    assert account.used_today == world.n_got + sum(one.tokens for _, one in world.streams.values())
    assert account.n_sequences == len(world.streams)
    assert world.n_got > 1000
