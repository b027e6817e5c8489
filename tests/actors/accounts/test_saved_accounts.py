"""The file of the accounts: the next incarnation goes on as if there had been no death."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.accounts.ledger import Ledger
from actors.accounts.saved_accounts import SavedAccount, encoded, restore, write_accounts
from messages.access.allowances import WantedAllowance
from messages.access.tenant_file import TenantBook
from messages.access.tenant_policy import TenantPolicy

NOON_S = 20_000 * 86_400.0 + 43_200.0


def ledger_with(**limits: int) -> Ledger:
    return Ledger(TenantBook({"acme": TenantPolicy(**limits)}, Path("/nowhere/tenants.json")))


@pytest.mark.parametrize(("before", "after"), [(0, 6000), (6000, 0), (6000, 6000), (60, 6000), (6000, 60), (0, 0)], ids=str)
def test_a_limit_that_changes_over_a_restart_is_as_one_that_changes_while_they_live(
    before: int, after: int, tmp_path: Path
) -> None:
    living, path = ledger_with(max_sequences=9, tokens_per_min=before), tmp_path / "accounts"
    one = WantedAllowance(request="a", sequences=1, prompt_tokens=30, output_tokens=20)
    assert living.take("gateway/0", "acme", [one], 0.0, NOON_S)[0] is None
    write_accounts(path, encoded(living, NOON_S))
    living.book.policies["acme"] = TenantPolicy(max_sequences=9, tokens_per_min=after)
    restored = ledger_with(max_sequences=9, tokens_per_min=after)
    assert restore(restored, path, 1001.0, NOON_S + 1.0)
    expected, found = living.account("acme", 1.0, NOON_S + 1.0), restored.account("acme", 1001.0, NOON_S + 1.0)
    assert (found.tokens.left, found.tokens.owed) == (expected.tokens.left, expected.tokens.owed)
    assert (found.used_today, found.held_tokens, found.n_sequences) == (30, 20, 1)


def test_accounts_of_the_last_release_have_no_limits_of_their_buckets() -> None:
    row = msgspec.msgpack.encode([0.0, 0.0, 50.0, 0.0, 20_000, 10])
    saved = msgspec.msgpack.decode(row, type=SavedAccount)
    assert (saved.tokens_left, saved.used_today, saved.tokens_per_min, saved.requests_per_min) == (50.0, 10, -1.0, -1.0)
