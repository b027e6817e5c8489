"""`long-prefills`: whether the checks of health take a replica that computes long prompts for one that is broken.

python -m ops.bench long-prefills --requests 10000
"""

from __future__ import annotations

import random
import time

import click

from ops.bench.policies.prefill_health import WatchedPrefills, long_prefills
from supervisor.bench.serve_load import CONSOLE, write_json


@click.command(context_settings={"show_default": True})
@click.option("--requests", "n_requests", default=10_000)
@click.option("--least", default=4096, help="Tokens of the shortest prompt.")
@click.option("--most", default=120_000, help="Tokens of the longest one.")
@click.option("--per-s", default=0.35, help="Requests a second of virtual time.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(n_requests: int, least: int, most: int, per_s: float, seed: int, out: str | None) -> None:
    """Compute long prompts in virtual time under the real checks; each alarm is a false one. Exit status 1 if one in a hundred
    prompts has an alarm. Late attempts are no alarm by themselves: enough of them open the breaker."""
    began_s = time.monotonic()
    alarms = WatchedPrefills().watch(long_prefills(n_requests, least, most, per_s, random.Random(seed)))
    n_alarms = len(alarms.kills) + alarms.standstills + alarms.openings
    result = {
        "bench": "long-prefills",
        "seed": seed,
        "prompts": alarms.n_prefills,
        "tokens": [least, most],
        "virtual_s": round(alarms.virtual_s),
        "longest_step_s": round(alarms.longest_step_s, 2),
        "longest_first_token_s": round(alarms.longest_wait_s, 1),
        "kills": len(alarms.kills),
        "standstills": alarms.standstills,
        "late_attempts": alarms.late,
        "breaker_openings": alarms.openings,
        "false_alarms_percent": round(100.0 * n_alarms / alarms.n_prefills, 3),
        "reasons": alarms.kills[:8],
        "took_s": round(time.monotonic() - began_s),
    }
    CONSOLE.print(result)
    write_json(result, out)
    raise SystemExit(0 if n_alarms < alarms.n_prefills / 100 else 1)
