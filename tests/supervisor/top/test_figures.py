"""Rates from status reports whose figures are as old as heartbeats."""

from __future__ import annotations

import pytest

from messages.lifecycle.tree import ChildState, ChildStatus, StatusReport, TreeState
from supervisor.top.figures import Trends
from supervisor.usage.tenant_lines import TenantUse


def child(name: str, beat_age_s: float = 0.0, incarnation: int = 1, pid: int = 7, **statistics: float) -> ChildStatus:
    return ChildStatus(
        name=name,
        incarnation=incarnation,
        pid=pid,
        state=ChildState.READY,
        phase="",
        restarts=incarnation - 1,
        uptime_s=5.0,
        beat_age_s=beat_age_s,
        steps=0,
        busy_s=0.0,
        statistics=statistics,
        metrics=[],
    )


def report(*children: ChildStatus) -> StatusReport:
    return StatusReport(state=TreeState.SERVING, uptime_s=9.0, model="m", url="u", children=list(children))


def test_a_rate_is_counted_between_heartbeats_not_between_reports() -> None:
    trends = Trends()
    trends.screen(report(child("worker/0.0", 0.5, tokens_sampled=100.0)), 10.0)  # as of 9.5
    figures = trends.screen(report(child("worker/0.0", 0.1, tokens_sampled=350.0)), 12.1)  # as of 12.0
    assert figures.tokens_rate == pytest.approx(100.0)
    same = trends.screen(report(child("worker/0.0", 1.1, tokens_sampled=350.0)), 13.1)  # nothing new was told
    assert same.tokens_rate == pytest.approx(100.0)
    silent = trends.screen(report(child("worker/0.0", 4.0, tokens_sampled=350.0)), 16.0)
    assert silent.tokens_rate == 0.0
    assert [round(rate) for rate in silent.curve] == [0, 100, 100, 0]


def test_the_first_rank_of_each_gang_counts_and_a_new_life_begins_at_nothing() -> None:
    trends = Trends()
    names = ("worker/0.0", "worker/0.1", "worker/1.0b", "worker/1.1b")
    trends.screen(report(*(child(name, tokens_sampled=0.0) for name in names)), 0.0)
    figures = trends.screen(report(*(child(name, tokens_sampled=10.0) for name in names)), 1.0)
    assert figures.tokens_rate == pytest.approx(20.0)
    reborn = trends.screen(report(*(child(name, incarnation=2, tokens_sampled=3.0) for name in names)), 2.0)
    assert reborn.tokens_rate == 0.0
    assert reborn.children[0].restarts == 1


def test_figures_of_several_actors_are_added_up_and_those_of_the_dead_left_out() -> None:
    gateways = [child(f"gateway/{n}", active=2.0, waiting=1.0, drafts_verified=10.0, drafts_accepted=4.0) for n in (0, 1)]
    dead = child("gateway/2", pid=0, active=9.0)
    schedulers = [child(f"scheduler/{n}", running=3.0, waiting=1.0) for n in (0, 1)]
    figures = Trends().screen(report(*gateways, dead, *schedulers), 0.0)
    assert (figures.active, figures.running, figures.waiting, figures.acceptance) == (4, 6, 4, 0.4)
    assert Trends().screen(report(), 0.0).acceptance is None


def test_gpus_and_tenants_are_shown_where_an_actor_tells_of_them() -> None:
    gpu = {
        "busy_percent of gpu 0": 93.0,
        "power_watts of gpu 0": 650.0,
        "new_figure of gpu 1": 1.0,
        "busy_percent of gpu 1": 5.0,
    }
    accounts = {"tokens today of a": 7.0, "sequences of a": 1.0}
    gateways = [{f"used tokens of {name}": n, f"ended requests of {name}": 2.0} for name, n in (("a", 5.0), ("b", 6.0))]
    figures = Trends().screen(
        report(
            child("gpu_monitor/0", 0.0, 1, 7, **gpu),
            child("accounts/0", 0.0, 1, 7, **accounts),
            *(child(f"gateway/{number}", 0.0, 1, 7, **used) for number, used in enumerate(gateways)),
        ),
        0.0,
    )
    assert [(row.name, row.busy_percent, row.power_watts) for row in figures.gpus] == [("0", 93.0, 650.0), ("1", 5.0, None)]
    assert figures.tenants == [TenantUse("b", 6, 2), TenantUse("a", 5, 2)]  # without limits, too
    assert figures.tenants_today == [TenantUse("a", 7, 1)]
