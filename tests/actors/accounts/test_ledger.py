"""The accounts: what they allow, what they count, and that each limit says when to come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.accounts.account import Denied
from actors.accounts.account_figures import named
from actors.accounts.ledger import ABANDONED_S, Ledger
from messages.access.allowances import SpentAllowance, UsageTold, WantedAllowance
from messages.access.tenant_file import TenantBook
from messages.access.tenant_policy import LimitName, TenantPolicy
from tests.support.depth import examples

DAY_S = 86_400.0
NOON_S = 20_000 * DAY_S + DAY_S / 2


def ledger_with(**limits: int) -> Ledger:
    return Ledger(TenantBook({"acme": TenantPolicy(**limits)}, Path("/nowhere/tenants.json")))


def wanted(name: str, prompt: int = 10, output: int = 20, sequences: int = 1) -> WantedAllowance:
    return WantedAllowance(request=name, sequences=sequences, prompt_tokens=prompt, output_tokens=output)


def take(ledger: Ledger, *names: str, at_s: float = 0.0, wall_s: float = NOON_S, **sizes: int) -> Denied | None:
    return ledger.take("gateway/0", "acme", [wanted(name, **sizes) for name in names], at_s, wall_s)[0]


def told(ledger: Ledger, name: str, tokens: int, *, is_over: bool = False, wall_s: float = NOON_S, number: int = 1) -> None:
    row = SpentAllowance(request=name, tenant="acme", sequences=1, most_tokens=30, tokens=tokens, is_over=is_over)
    ledger.tell("gateway/0", UsageTold(number=number, spent=[row]), 0.0, wall_s)


@pytest.mark.parametrize(
    ("limits", "name", "retry_after_s"),
    [
        ({"requests_per_min": 2}, LimitName.REQUESTS, 30.0),
        ({"tokens_per_min": 60}, LimitName.TOKENS, 30.0),
        ({"max_sequences": 2}, LimitName.SEQUENCES, 1.0),
        ({"tokens_per_day": 75}, LimitName.DAY, 1.0),
    ],
)
def test_a_limit_refuses_the_third_request_and_says_when_to_come_back(
    limits: dict[str, int], name: LimitName, retry_after_s: float
) -> None:
    ledger = ledger_with(**limits)
    assert take(ledger, "a") is None
    assert take(ledger, "b") is None
    denied = take(ledger, "c")
    assert denied is not None
    assert (denied.name, denied.limit, denied.retry_after_s) == (name, *limits.values(), retry_after_s)
    assert take(ledger, "a") is None, "the same request again was taken already"


def test_what_was_set_aside_and_not_used_comes_back() -> None:
    ledger = ledger_with(tokens_per_min=60, tokens_per_day=60)
    assert take(ledger, "a", "b") is None
    told(ledger, "a", 12, is_over=True)
    account = ledger.account("acme", 0.0, NOON_S)
    assert (account.tokens.left, account.used_today, account.held_tokens, account.n_sequences) == (18, 12 + 10, 20, 1)
    told(ledger, "a", 12, is_over=True)
    assert account.tokens.left == 18, "it is told twice"
    told(ledger, "b", 30)
    assert (account.used_today, account.held_tokens) == (42, 0)


def test_a_batch_is_taken_as_a_whole_or_not_at_all() -> None:
    ledger = ledger_with(requests_per_min=3)
    assert take(ledger, "a", "b") is None
    denied = take(ledger, "c", "d")
    assert (denied is not None, len(ledger.requests)) == (True, 2)
    assert take(ledger, "c") is None


def test_a_whole_limit_is_enough_for_any_answer_but_not_for_any_prompt() -> None:
    ledger = ledger_with(tokens_per_min=60)
    assert take(ledger, "a", prompt=20, output=8000) is None
    told(ledger, "a", 90, is_over=True)
    account = ledger.account("acme", 0.0, NOON_S)
    assert (account.tokens.left, account.tokens.owed) == (0, 30)
    denied = take(ledger, "b")
    assert denied is not None
    assert denied.retry_after_s == 60.0, "what it has used beyond the limit is paid first"
    never = take(ledger_with(tokens_per_min=60), "c", prompt=61)
    assert never is not None
    assert (never.needed, never.retry_after_s) == (61, 0.0)


def test_the_quota_of_a_day_comes_back_at_midnight() -> None:
    ledger = ledger_with(tokens_per_day=40)
    assert take(ledger, "a") is None
    told(ledger, "a", 30, is_over=True)
    denied = take(ledger, "b")
    assert denied is not None
    assert denied.retry_after_s == DAY_S / 2
    assert take(ledger, "b", wall_s=NOON_S + DAY_S / 2) is None
    account = ledger.account("acme", 0.0, NOON_S - DAY_S)
    assert account.used_today == 10, "a clock that is put back begins no day a second time"
    assert ledger.account("acme", 0.0, NOON_S - 9 * DAY_S).used_today == 10
    assert ledger.account("acme", 0.0, NOON_S - 8 * DAY_S).used_today == 0


def test_requests_of_a_gateway_that_does_not_come_back_are_over() -> None:
    ledger = ledger_with(max_sequences=1)
    assert take(ledger, "a") is None
    ledger.gateway_down("gateway/0", 100.0)
    ledger.expire(99.0 + ABANDONED_S, NOON_S)
    assert take(ledger, "b", at_s=200.0) is not None
    ledger.expire(100.0 + ABANDONED_S, NOON_S)
    assert take(ledger, "b", at_s=300.0) is None


def test_a_successor_lists_what_goes_on_and_the_rest_is_over() -> None:
    ledger = ledger_with(max_sequences=2)
    assert take(ledger, "a", "b") is None
    told(ledger, "b", 10)
    ledger.gateway_down("gateway/0", 1.0)
    row = SpentAllowance(request="a", tenant="acme", sequences=1, most_tokens=30, tokens=25)
    ledger.tell("gateway/0", UsageTold(number=1, spent=[row], listing=1, is_last=True), 2.0, NOON_S)
    account = ledger.account("acme", 2.0, NOON_S)
    assert (account.n_sequences, account.used_today, [*ledger.requests]) == (1, 25 + 10, ["a"])


def test_what_a_gateway_could_not_accept_before_it_died_costs_nothing() -> None:
    ledger = ledger_with(requests_per_min=2, tokens_per_min=100, tokens_per_day=100)
    assert take(ledger, "lost", prompt=60) is None
    asked = SpentAllowance(request="lost", tenant="acme", sequences=1, most_tokens=80, tokens=60, is_recovered=True)
    ledger.tell("gateway/0", UsageTold(number=1, spent=[asked]), 0.0, NOON_S)  # it has asked, and is not decided
    ledger.gateway_down("gateway/0", 0.0)
    assert take(ledger, "again", prompt=60) is not None, "until its successor has told what goes on"
    ledger.tell("gateway/0", UsageTold(number=1, spent=[], listing=1, is_last=True), 0.0, NOON_S)
    account = ledger.account("acme", 0.0, NOON_S)
    assert (account.used_today, account.requests.left, account.tokens.left) == (0, 2, 100)
    assert take(ledger, "again", prompt=60) is None


def test_a_request_that_was_never_accepted_costs_nothing() -> None:
    ledger = ledger_with(requests_per_min=2, max_sequences=1)
    told(ledger, "refused", 0, is_over=True)
    assert not ledger.requests
    assert take(ledger, "a") is None
    told(ledger, "a", 0, is_over=True)
    account = ledger.account("acme", 0.0, NOON_S)
    assert (account.used_today, account.n_sequences, account.requests.left) == (0, 0, 2)
    told(ledger, "a", 0, is_over=True)
    assert take(ledger, "b") is None
    assert account.requests.left == 1, "it is given back once"


@given(st.integers(1, 50), st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(1, 40)), max_size=40))
@examples(50)
def test_whoever_comes_back_when_it_was_told_to_is_let_in(per_min: int, arrivals: list[tuple[float, int]]) -> None:
    ledger, now_s = ledger_with(requests_per_min=per_min, tokens_per_min=40 + per_min), 0.0
    for n, (pause_s, size) in enumerate(arrivals):
        now_s += pause_s
        ledger.account("acme", now_s, NOON_S)
        while (denied := take(ledger, f"r{n}", at_s=now_s, prompt=size, output=0)) is not None:
            assert denied.retry_after_s > 0.0
            assert now_s <= 1e6, "it is told to come back again and again"
            now_s += denied.retry_after_s


@given(st.lists(st.integers(1, 100), max_size=30))
@examples(50)
def test_what_one_tenant_does_changes_nothing_for_another(sizes: list[int]) -> None:
    book = TenantBook({"default": TenantPolicy(requests_per_min=3, max_sequences=2)}, Path("/nowhere/tenants.json"))
    ledger = Ledger(book)
    for n, size in enumerate(sizes):
        ledger.take("gateway/0", "greedy", [wanted(f"g{n}", size)], 0.0, NOON_S)
    assert ledger.take("gateway/0", "modest", [wanted("m")], 0.0, NOON_S)[0] is None


def test_an_id_that_was_used_before_is_a_request_of_its_own() -> None:
    ledger = ledger_with(requests_per_min=2, tokens_per_day=1000)
    assert take(ledger, "a") is None
    told(ledger, "a", 30, is_over=True)
    assert take(ledger, "a") is None, "its gateway has heard that the first one is on disk"
    told(ledger, "a", 25, is_over=True, number=2)
    assert take(ledger, "a") is not None
    assert ledger.account("acme", 0.0, NOON_S).used_today == 30 + 25


def test_requests_of_two_gateways_or_tenants_may_have_the_same_id() -> None:
    ledger = Ledger(TenantBook({"default": TenantPolicy(max_sequences=2)}, Path("/nowhere/tenants.json")))
    by = [("gateway/0", "acme"), ("gateway/1", "acme"), ("gateway/1", "other")]
    for gateway, tenant in by * 2:  # the second copy of each question changes nothing
        assert ledger.take(gateway, tenant, [wanted("a")], 0.0, NOON_S)[0] is None
    assert ledger.take("gateway/0", "acme", [wanted("b")], 0.0, NOON_S)[0] is not None
    for gateway, tenant in by:
        row = SpentAllowance(request="a", tenant=tenant, sequences=1, most_tokens=30, tokens=25, is_over=True)
        for _ in range(2):
            ledger.tell(gateway, UsageTold(number=1, spent=[row]), 0.0, NOON_S)
    assert {name: (one.used_today, one.n_sequences) for name, one in ledger.accounts.items()} == {
        "acme": (50, 0),
        "other": (25, 0),
    }
    for gateway in ("gateway/0", "gateway/1"):
        ledger.tell(gateway, UsageTold(number=2, spent=[], noted=1), 0.0, NOON_S)
    assert not ledger.requests


def test_a_gateway_goes_on_with_the_requests_of_a_dead_one_whose_journal_it_has() -> None:
    ledger = ledger_with(max_sequences=2)
    assert take(ledger, "a") is None
    ledger.gateway_down("gateway/0", 1.0)
    assert ledger.take("gateway/1", "acme", [wanted("a")], 1.0, NOON_S)[0] is None, "a new request with the same id"
    assert take(ledger, "b", at_s=1.0) is not None
    row = SpentAllowance(request="a", tenant="acme", sequences=1, most_tokens=30, tokens=25)
    ledger.tell("gateway/2", UsageTold(number=1, spent=[row], listing=1, is_last=True), 2.0, NOON_S)
    account = ledger.account("acme", 2.0, NOON_S)
    assert (account.used_today, account.n_sequences) == (25 + 10, 2)


def test_whoever_lacks_several_limits_is_told_of_the_one_that_takes_longest() -> None:
    ledger = ledger_with(requests_per_min=1, tokens_per_day=40)
    assert take(ledger, "a") is None
    told(ledger, "a", 30, is_over=True)
    denied = take(ledger, "b")
    assert denied is not None
    assert (denied.name, denied.retry_after_s) == (LimitName.DAY, DAY_S / 2)
    never = take(ledger_with(requests_per_min=1, tokens_per_min=5), "c", "d")
    assert never is not None
    assert (never.name, never.retry_after_s) == (LimitName.REQUESTS, 0.0), "what can never be is told at once"
    busy = ledger_with(requests_per_min=1, tokens_per_min=5)
    assert take(busy, "e", prompt=1, output=1) is None
    too_long = take(busy, "f")
    assert too_long is not None
    assert (too_long.name, too_long.retry_after_s) == (LimitName.TOKENS, 0.0)


def test_what_was_used_yesterday_is_not_shown_as_used_today() -> None:
    ledger = ledger_with(tokens_per_day=40)
    assert take(ledger, "a") is None
    told(ledger, "a", 30, is_over=True)
    ledger.expire(1.0, NOON_S)
    assert named(ledger, 1) == [("acme", 0, 30)]
    ledger.expire(2.0, NOON_S + DAY_S / 2)
    assert named(ledger, 1) == [("acme", 0, 0)]


def test_a_gateway_that_comes_back_late_goes_on_with_what_was_counted() -> None:
    ledger = ledger_with(max_sequences=2, tokens_per_min=60, tokens_per_day=1000)
    assert take(ledger, "a", "b") is None
    told(ledger, "a", 25)
    ledger.gateway_down("gateway/0", 100.0)
    ledger.expire(100.0 + ABANDONED_S, NOON_S)
    account = ledger.account("acme", 100.0 + ABANDONED_S, NOON_S)
    assert (account.used_today, account.held_tokens, account.n_sequences, account.tokens.left) == (25 + 10, 0, 0, 60)
    row = SpentAllowance(request="a", tenant="acme", sequences=1, most_tokens=30, tokens=27)
    late_s = 101.0 + ABANDONED_S
    ledger.tell("gateway/0", UsageTold(number=1, spent=[row], listing=1, is_last=True), late_s, NOON_S)
    assert (account.used_today, account.held_tokens, account.n_sequences, account.tokens.left) == (27 + 10, 3, 1, 58)
    told(ledger, "a", 30, is_over=True, number=2)
    assert (account.used_today, account.held_tokens, account.n_sequences) == (30 + 10, 0, 0)
    assert [*ledger.requests] == ["a"], "what the gateway does not go on with is forgotten"


def test_what_a_gateway_has_left_behind_is_forgotten_with_its_day() -> None:
    ledger = ledger_with(tokens_per_day=1000)
    assert take(ledger, "a") is None
    ledger.gateway_down("gateway/0", 0.0)
    ledger.expire(ABANDONED_S, NOON_S)
    assert [*ledger.requests] == ["a"]
    ledger.expire(ABANDONED_S + 1.0, NOON_S + DAY_S / 2)
    assert not ledger.requests
