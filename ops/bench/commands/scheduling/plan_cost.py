"""`plan-cost`: what planning takes of the processor with a full batch and a long queue, by policy, in turns.

python -m ops.bench plan-cost
"""

from __future__ import annotations

from statistics import median

import click

from actors.scheduler.sequences.policy import PolicyName
from ops.bench.machine import describe_machine
from ops.bench.policies.planner_load import PlannerLoad, PlanTimes
from supervisor.bench.serve_load import CONSOLE, write_json

_STEP_US = 9_200.0  # of an 8B model with 256 sequences, as measured
_BASELINE = "fcfs, one caller"


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=256, help="Sequences that run.")
@click.option("--waiting", default=1000, help="Sequences in the queue.")
@click.option("--callers", default=100)
@click.option("--turns", default=12, help="Turns of each policy.")
@click.option("--plans", default=100, help="Plans in a turn.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(rows: int, waiting: int, callers: int, turns: int, plans: int, seed: int, out: str | None) -> None:
    """Medians of processor time for a plan and for its result: the decision, the bytes that are sent. What a policy adds to a
    plan is the difference from `fcfs` with one caller. The policies take turns, so other work disturbs all of them alike."""
    machine = describe_machine()
    loads = {_BASELINE: PlannerLoad(PolicyName.FCFS, rows, waiting, 1, seed)}
    loads |= {policy.value: PlannerLoad(policy, rows, waiting, callers, seed) for policy in PolicyName}
    measured: dict[str, list[PlanTimes]] = {name: [] for name in loads}
    for _ in range(turns):
        for name, load in loads.items():
            measured[name].append(load.measure(plans))
    least_us = _figures(measured[_BASELINE])["plan_us"]
    for name, times in measured.items():
        figures = _figures(times)
        added_us = figures["plan_us"] - least_us
        shares = {"added_us": round(added_us, 1), "added_percent_of_step": round(100.0 * added_us / _STEP_US, 2)}
        row = {"bench": "plan-cost", "policy": name, "rows": rows, "waiting": waiting, "callers": callers, **figures, **shares}
        CONSOLE.print(row)
        write_json({**row, "machine": machine}, out)


def _figures(times: list[PlanTimes]) -> dict[str, float]:
    """Medians over all plans, and the mean of the plans, which has those in it that begin prompts; microseconds."""
    plans = [1e6 * value for turn in times for value in turn.plan_s]
    parts = {
        name: [1e6 * value for turn in times for value in getattr(turn, f"{name}_s")] for name in ("send", "apply", "tell")
    }
    decided = [plan + applied for plan, applied in zip(plans, parts["apply"], strict=True)]
    return {
        "plan_us": round(median(plans), 1),
        "plan_mean_us": round(sum(plans) / len(plans), 1),
        **{f"{name}_us": round(median(values), 1) for name, values in parts.items()},
        "plan_and_apply_us": round(median(decided), 1),
        "percent_of_step": round(100.0 * median(decided) / _STEP_US, 2),
    }
