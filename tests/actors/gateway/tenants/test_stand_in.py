"""A gateway that decides in place of the accounts: all gateways together allow no more than was left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.requests.refusals import duration_text
from actors.gateway.tenants.stand_in import StandIn
from messages.access.allowances import AllowanceState, WantedAllowance
from messages.access.tenant_policy import LimitName, TenantPolicy
from tests.support.depth import examples

POLICY = TenantPolicy(requests_per_min=40, tokens_per_min=400, max_sequences=8, tokens_per_day=10_000)


def wanted(size: int, sequences: int = 1) -> list[WantedAllowance]:
    return [WantedAllowance(request="r", sequences=sequences, prompt_tokens=size, output_tokens=0)]


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), max_size=200))
@examples(50)
def test_all_gateways_together_allow_no_more_than_was_left(n_gateways: int, arrivals: list[tuple[int, int]]) -> None:
    stand_ins = [StandIn(n_gateways) for _ in range(n_gateways)]
    state = AllowanceState(requests=21, tokens=203, sequences=8, day_tokens=150)
    for stand_in in stand_ins:
        stand_in.heard("acme", state, 0.0)
    taken = [
        size
        for at, size in arrivals
        if stand_ins[at % n_gateways].decide("acme", POLICY, wanted(size), 0, 0.0).refused_by is None
    ]
    assert len(taken) <= 21
    assert sum(taken) <= 150


def test_each_limit_refuses_and_says_when_to_come_back() -> None:
    for left, name in (
        (AllowanceState(requests=0, tokens=400, day_tokens=100), LimitName.REQUESTS),
        (AllowanceState(requests=9, tokens=0, day_tokens=100), LimitName.TOKENS),
        (AllowanceState(requests=9, tokens=400, day_tokens=1), LimitName.DAY),
    ):
        stand_in = StandIn(1)
        stand_in.heard("acme", left, 0.0)
        answer = stand_in.decide("acme", POLICY, wanted(10), 0, 0.0)
        assert (answer.refused_by, answer.retry_after_s) == (name, 1.0)
    answer = StandIn(2).decide("acme", POLICY, wanted(10, sequences=3), 2, 0.0)
    assert answer.refused_by is LimitName.SEQUENCES
    assert StandIn(2).decide("acme", POLICY, wanted(10, sequences=2), 2, 0.0).refused_by is None


def test_the_part_of_what_comes_meanwhile_may_be_used() -> None:
    stand_in = StandIn(2)
    stand_in.heard("acme", AllowanceState(requests=0, tokens=400, day_tokens=1000), 0.0)
    assert stand_in.decide("acme", POLICY, wanted(1), 0, 1.0).refused_by is LimitName.REQUESTS
    assert stand_in.decide("acme", POLICY, wanted(1), 0, 3.0).refused_by is None


def test_times_are_written_as_openai_writes_them() -> None:
    spans = (0.0, 0.0195, 1.2, 8, 59.5, 360, 53_950.2)
    assert [duration_text(one) for one in spans] == ["0ms", "20ms", "2s", "8s", "1m0s", "6m0s", "14h59m11s"]
