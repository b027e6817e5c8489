"""The pace of the last seconds: right over deaths of gateways and of the supervisor, and never a count of all time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from actors.gateway.metrics import GatewayMetrics
from actors.gateway.page.gateway_counts import Counted, counted_in, sequences_in
from actors.gateway.page.pace import LATENCY_S, RATE_S, PaceFigures, RecentPace
from messages.metrics import take_snapshot

BOUNDS = (0.1, 0.2)
LONG_AGO_S = -1000.0


def counted(tokens: float, first: tuple[float, ...] = (0.0, 0.0, 0.0), born_s: float = LONG_AGO_S) -> Counted:
    return Counted(born_s, tokens, requests=tokens / 10, bounds=BOUNDS, first_tokens=first)


def test_nothing_is_known_from_one_sample() -> None:
    pace = RecentPace()
    assert pace.figures() == PaceFigures()
    pace.note(0.0, {("gateway/0", 1): counted(1e6)})
    assert pace.figures() == PaceFigures()


def test_rates_are_those_of_all_gateways_over_the_window() -> None:
    pace = RecentPace()
    for second in range(20):
        pace.note(second, {("gateway/0", 1): counted(100.0 * second), ("gateway/1", 1): counted(50.0 * second)})
    figures = pace.figures()
    assert (figures.tokens_per_s, figures.requests_per_s) == (pytest.approx(150), pytest.approx(15))


def test_an_old_rate_is_forgotten() -> None:
    pace = RecentPace()
    for second in range(20):
        pace.note(second, {("gateway/0", 1): counted(min(second, 10) * 100.0)})
    assert pace.figures().tokens_per_s == 0


def test_latencies_are_those_of_the_last_seconds_alone() -> None:
    pace = RecentPace()
    pace.note(0.0, {("gateway/0", 1): counted(0.0, (1000.0, 0.0, 0.0))})
    pace.note(1.0, {("gateway/0", 1): counted(0.0, (1000.0, 10.0, 0.0))})
    figures = pace.figures()
    assert figures.first_token_p50_ms == pytest.approx(150)
    assert figures.first_token_p99_ms == pytest.approx(199)
    pace.note(2.0 + LATENCY_S, {("gateway/0", 1): counted(0.0, (1000.0, 10.0, 0.0))})
    assert pace.figures().first_token_p50_ms is None


def test_a_gateway_that_begins_again_counts_from_zero() -> None:
    pace = RecentPace()
    pace.note(0.0, {("gateway/0", 1): counted(5000.0)})
    pace.note(4.0, {("gateway/0", 2): counted(40.0, born_s=2.0)})
    assert pace.figures().tokens_per_s == pytest.approx(10)


def test_a_gateway_of_which_a_new_supervisor_knows_nothing_yet_keeps_its_counts() -> None:
    pace, who = RecentPace(), ("gateway/1", 1)
    pace.note(0.0, {who: counted(5000.0)})
    pace.note(1.0, {who: None})
    pace.note(2.0, {who: counted(5020.0)})
    assert pace.figures().tokens_per_s == pytest.approx(10)


def test_a_gateway_that_reports_for_the_first_time_is_no_burst() -> None:
    pace, who = RecentPace(), ("gateway/1", 1)
    pace.note(0.0, {who: None})
    pace.note(1.0, {who: counted(5000.0)})
    assert pace.figures().tokens_per_s == 0


def test_other_buckets_of_another_release_are_left_out() -> None:
    pace, other = RecentPace(), Counted(LONG_AGO_S, 0.0, 0.0, (1.0,), (7.0, 0.0))
    pace.note(0.0, {("gateway/0", 1): counted(0.0), ("gateway/1", 1): other})
    pace.note(1.0, {("gateway/0", 1): counted(0.0, (4.0, 0.0, 0.0)), ("gateway/1", 1): other})
    assert pace.figures().first_token_p50_ms == pytest.approx(50)


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.integers(0, 1000), st.booleans()), min_size=1, max_size=80))
def test_a_rate_is_never_negative_nor_more_than_was_counted(steps: list[tuple[float, int, bool]]) -> None:
    pace, now_s, life, total, most = RecentPace(), 0.0, 1, 0.0, 0.0
    pace.note(now_s, {("gateway/0", life): counted(0.0, born_s=0.0)})
    born_s = 0.0
    for step_s, tokens, dies in steps:
        now_s += step_s
        if dies:
            life, total, born_s = life + 1, 0.0, now_s
        total += tokens
        most += tokens
        pace.note(now_s, {("gateway/0", life): counted(total, born_s=born_s)})
        rate = pace.figures().tokens_per_s
        assert rate is not None
        assert 0 <= rate * min(step_s, RATE_S) <= most + 1e-6


def test_the_counts_are_those_of_a_gateways_own_metrics() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    assert counted_in([], 0.0) is None
    metrics.output_tokens.inc(7)
    metrics.requests.labels("chat", "stop").inc(2)
    metrics.requests.labels("completion", "length").inc()
    for seconds in (0.005, 0.03, 0.03, 9999.0):
        metrics.first_token_s.observe(seconds)
    metrics.active.set(5)
    metrics.waiting.set(3)
    found = counted_in(take_snapshot(registry), 1.5)
    assert found is not None
    assert (found.born_s, found.tokens, found.requests) == (1.5, 7, 3)
    assert (found.bounds[0], found.first_tokens[0], found.first_tokens[2], found.first_tokens[-1]) == (0.01, 1, 2, 1)
    assert (len(found.first_tokens), sum(found.first_tokens)) == (len(found.bounds) + 1, 4)
    assert sequences_in(take_snapshot(registry)) == (5, 3)
