"""The headers that tell of the limits agree with what the accounts say: nobody who waits until then is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.accounts.ledger import Ledger
from actors.gateway.tenants.limit_headers import limit_headers
from actors.gateway.tenants.stand_in import StandIn
from messages.access.allowances import SpentAllowance, UsageTold, WantedAllowance
from messages.access.tenant_file import TenantBook
from messages.access.tenant_policy import LimitName, TenantPolicy

POLICY = TenantPolicy(tokens_per_min=60)
NOON_S = 20_000 * 86_400.0 + 43_200.0


def wanted(name: str, tokens: int) -> list[WantedAllowance]:
    return [WantedAllowance(request=name, sequences=1, prompt_tokens=10, output_tokens=tokens - 10)]


@pytest.fixture
def ledger() -> Ledger:
    """Accounts of a tenant that owes 90 tokens: one answer was longer than a minute's tokens."""
    ledger = Ledger(TenantBook({"acme": POLICY}, Path("/nowhere/tenants.json")))
    assert ledger.take("gateway/0", "acme", wanted("a", 150), 0.0, NOON_S)[0] is None
    row = SpentAllowance(request="a", tenant="acme", sequences=1, most_tokens=150, tokens=150, is_over=True)
    ledger.tell("gateway/0", UsageTold(number=1, spent=[row]), 0.0, NOON_S)
    return ledger


def test_what_is_owed_is_a_part_of_the_time_until_all_of_a_limit_is_there(ledger: Ledger) -> None:
    denied, state = ledger.take("gateway/0", "acme", wanted("b", 60), 0.0, NOON_S)
    assert denied is not None
    assert denied.retry_after_s == 150.0
    assert limit_headers(POLICY, state)["x-ratelimit-reset-tokens"] == "2m30s"
    assert limit_headers(POLICY, state)["x-ratelimit-remaining-tokens"] == "0"


def test_a_gateway_that_decides_alone_knows_what_is_owed(ledger: Ledger) -> None:
    stand_in = StandIn(n_gateways=1)
    stand_in.heard("acme", ledger.take("gateway/0", "acme", wanted("b", 60), 0.0, NOON_S)[1], 0.0)
    decided = [stand_in.decide("acme", POLICY, wanted("b", 60), 0, now_s).refused_by for now_s in (60.0, 149.0, 150.0)]
    assert decided == [LimitName.TOKENS, LimitName.TOKENS, None]
