"""`policies`: scheduling policies on generated traces, with the real planner and a device that is a formula, in virtual time.

python -m ops.bench policies                          all traces, each policy beside fcfs
python -m ops.bench policies --trace deadlines        one of them
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from actors.scheduler.sequences.policy import PolicyName
from ops.bench.policies import figures, traces
from ops.bench.policies.replay import PolicyRun
from supervisor.bench.serve_load import CONSOLE, write_json

_TENANTS_END_S = 35.0
_PRIORITY_RUNS = (  # policy, `scheduler.urgent_step_s`, how many times as long as alone a step beside others takes; 0: none is
    (PolicyName.FCFS, 0.0, 0.0),
    *((PolicyName.PRIORITY, urgent_step_s, 0.0) for urgent_step_s in (0.0, 0.015, 0.01, 0.007)),
    *((PolicyName.PRIORITY, 0.0, beside) for beside in (1.1, 1.4, 2.0)),
)
_PRIORITY_END_S = 68.0
_COST_ROUNDS, _COST_S, _COST_PER_S = 3, 8.0, 90.0
_STEP_US = 10_200.0  # of an 8B model with 256 sequences on an H200, as measured
_Rows = Iterator[dict[str, Any]]


@click.command(context_settings={"show_default": True})
@click.option("--trace", "names", type=click.Choice(["tenants", "deadlines", "priorities", "cost"]), multiple=True)
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here, one line for each row.")
def command(names: tuple[str, ...], seed: int, out: str | None) -> None:
    """Shares of two callers, deadlines at 90 % load, first tokens at saturation, and what planning costs."""
    for name in names or _TRACES:
        for row in _TRACES[name](seed):
            result = {"bench": "policies", "trace": name, "seed": seed, **row}
            CONSOLE.print(result)
            write_json(result, out)


def _tenants(seed: int) -> _Rows:
    """One caller asks for ten times as much as the other."""
    for weights, weight in traces.TENANT_WEIGHTS.items():
        requests = traces.two_tenants(weight, random.Random(seed))
        n_fcfs = None
        for policy in (PolicyName.FCFS, PolicyName.FAIR):
            given = PolicyRun(policy, _TENANTS_END_S).replay(requests)
            parts, wanted = figures.shares(given, b"light", _TENANTS_END_S), weight / (1.0 + weight)
            n_tokens = figures.tokens_before(given, _TENANTS_END_S)
            n_fcfs = n_fcfs or n_tokens
            yield {
                "policy": policy.value,
                "weights": weights,
                "share_error_percent": round(100.0 * figures.share_error(parts, wanted), 2),
                "throughput_of_fcfs_percent": round(100.0 * n_tokens / n_fcfs, 2),
                "displaced": given.n_displaced,
            }


def _deadlines(seed: int) -> _Rows:
    """Short requests with near deadlines beside bursts of long ones, at 90 % of what the device can do."""
    sample = [replace(one, at_s=0.0) for one in traces.deadlines(60.0, random.Random(seed))]
    per_s = 0.9 * figures.saturated_per_s(PolicyRun(PolicyName.FCFS).replay(sample))
    requests = traces.deadlines(per_s, random.Random(seed))
    for policy in (PolicyName.FCFS, PolicyName.SLA):
        given = PolicyRun(policy).replay(requests)
        yield {
            "policy": policy.value,
            "requests_per_s": round(per_s, 1),
            "met_percent": round(100.0 * figures.met(given), 2),
            "late": given.n_late,
            "displaced": given.n_displaced,
        }


def _priorities(seed: int) -> _Rows:
    """Requests of high priority while thousands of the lowest one wait, beside the same requests alone. The first of them finds
    a server that expects none, so it counts apart."""
    for n_prompt in (512, 2048, 8192):
        alone = PolicyRun(PolicyName.PRIORITY, _PRIORITY_END_S).replay(traces.priorities(n_prompt, 0, random.Random(seed)))
        idle = sorted(figures.first_tokens_s(alone))
        for policy, urgent_step_s, beside in _PRIORITY_RUNS:
            requests = traces.priorities(n_prompt, 5000, random.Random(seed))
            given = PolicyRun(policy, _PRIORITY_END_S, urgent_step_s, beside).replay(requests)
            first, *later = figures.first_tokens_s(given) or [0.0]
            busy = sorted(later) or [first]
            yield {
                "policy": policy.value,
                "urgent_step_s": urgent_step_s,
                "beside": beside,
                "urgent_plans": given.n_beside,
                "prompt": n_prompt,
                "displaced": given.n_displaced,
                "answered": 1 + len(later),
                "tokens": figures.tokens_before(given, _PRIORITY_END_S),
                "first_one_ms": round(1e3 * first, 1),
                "p99_of_idle": round(figures.at_quantile(busy, 0.99) / figures.at_quantile(idle, 0.99), 2),
            } | {
                f"{name}_{label}_ms": round(1e3 * figures.at_quantile(values, quantile), 1)
                for name, values in (("idle", idle), ("busy", busy))
                for label, quantile in (("p50", 0.5), ("p99", 0.99))
            }


def _cost(seed: int) -> _Rows:
    """Planning for 256 sequences of 100 callers, by turns; the least of three medians."""
    requests = traces.many_tenants(100, _COST_PER_S, _COST_S, random.Random(seed))
    costs: dict[PolicyName, list[tuple[float, float]]] = {policy: [] for policy in PolicyName}
    for _ in range(_COST_ROUNDS):
        for policy, measured in costs.items():
            measured.append(figures.plan_cost_us(PolicyRun(policy, _COST_S).replay(requests)))
    for policy, measured in costs.items():
        plan_us, policy_us = (min(values) for values in zip(*measured, strict=True))
        yield {
            "policy": policy.value,
            "plan_us": round(plan_us),
            "of_it_policy_us": round(policy_us, 1),
            "policy_percent_of_step": round(100.0 * policy_us / _STEP_US, 2),
        }


_TRACES: Mapping[str, Callable[[int], _Rows]] = {
    "tenants": _tenants,
    "deadlines": _deadlines,
    "priorities": _priorities,
    "cost": _cost,
}
