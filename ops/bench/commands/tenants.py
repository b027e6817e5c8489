"""`tenants`: what one tenant of a server can do to another: learn from times what it has asked, and take its share.

python -m ops.bench tenants --subject caches     first tokens of prompts that another tenant has sent, and of new ones, in turns
python -m ops.bench tenants --subject answers    the same of whole answers, which are kept for equal requests
python -m ops.bench tenants --subject flood      first tokens of a tenant alone, and beside a flood of another one
python -m ops.bench tenants --subject poison     the same beside requests of another one that kill the workers
python -m ops.bench tenants --subject readers    the same beside streams of another one that it does not read
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ops.bench.own_server import own_server
from ops.bench.tenants.disturbances import VOCABULARY, asking, not_reading, plant_deadly_token
from ops.bench.tenants.timed_tenant import TimedTenant, new_key
from supervisor.bench.prompts import random_ids
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import auc, summarize

_FLAGS = ("--model", "hash-chain", "--gpus", "0", "--api-keys", "--max-length", "4096")
_DEVICE = ("worker.hash_chain_step_s=0.002", "worker.max_step_tokens=64", "worker.n_slots=8", "worker.hash_chain_pages=20000")
_SUBJECTS = ("caches", "answers", "flood", "poison", "readers")


@click.command(context_settings={"show_default": True})
@click.option("--subject", type=click.Choice(_SUBJECTS), default="caches")
@click.option(
    "--rounds", default=200, help="Of caches and answers: prompts of each kind. Of others: requests of the tenant, twice."
)
@click.option("--prompt-tokens", default=512, help="Of a prompt.")
@click.option("--flooders", default=32, help="Connections of the other tenant.")
@click.option("--pause", "pause_s", default=0.0, help="Seconds between two requests of one of these connections.")
@click.option("--standby/--no-standby", default=False, help="Whether the server has a standby gang.")
@click.option("--set", "settings", multiple=True, help="More settings of the server, as SECTION.KEY=VALUE.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(
    subject: str, rounds: int, prompt_tokens: int, flooders: int, pause_s: float, standby: bool, settings: Sequence[str],
    seed: int, out: str | None,
) -> None:  # fmt: skip
    """What one tenant can learn from times of another, and take from it. The server is one of ours, with the hash chain."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tg-") as state:
        path = plant_deadly_token(Path(state)) if subject == "poison" else os.environ.get("PYTHONPATH", "")
        flags = [
            *_FLAGS,
            *([] if standby else ["--no-standby"]),
            *(["--answer-cache", "exact"] if subject == "answers" else []),
        ]
        given = [part for one in (*_DEVICE, *settings) for part in ("--set", one)]
        with own_server([*flags, *given, "--state-dir", state], environment={"PYTHONPATH": path}) as server:
            keys = [new_key(state, tenant) for tenant in ("one", "other")]
            if subject in ("caches", "answers"):
                result: dict[str, Any] = _measure_times(server.port, keys, rounds, prompt_tokens, rng)
            else:
                disturbance = _disturbance(subject, server.port, keys[0], prompt_tokens, flooders, pause_s)
                result = _measure_beside(server.port, keys[1], rounds, disturbance, rng)
    result = {"bench": "tenants", "subject": subject, "rounds": rounds, "prompt_tokens": prompt_tokens, **result}
    result |= {"load": round(os.getloadavg()[0], 1)}
    CONSOLE.print(result)
    write_json(result, out)


def _measure_times(port: int, keys: Sequence[str], rounds: int, n_tokens: int, rng: random.Random) -> dict[str, Any]:
    """How well times tell a prompt that was sent before from a new one: 0.5 is a guess, 1.0 is certain."""
    victim, attacker = (TimedTenant(port, key) for key in keys)
    times: dict[str, list[float]] = {"other": [], "own": [], "new": []}
    for _ in range(rounds):
        prompts = {kind: random_ids(n_tokens, rng, VOCABULARY) for kind in times}
        victim.ask(prompts["other"])
        attacker.ask(prompts["own"])
        for kind in rng.sample(sorted(times), len(times)):
            times[kind].append(attacker.ask(prompts[kind])[1])
    return {
        "auc_of_prompts_of_the_other_tenant": round(auc(times["other"], times["new"]), 3),
        "auc_of_its_own_prompts": round(auc(times["own"], times["new"]), 3),
        "took_ms": {kind: _summary(values) for kind, values in times.items()},
    }


def _disturbance(
    subject: str, port: int, key: str, n_tokens: int, n: int, pause_s: float
) -> contextlib.AbstractContextManager[Counter[int]]:
    if subject == "readers":
        return not_reading(port, key, n_tokens, n)
    return asking(port, key, n_tokens, n, is_deadly=subject == "poison", pause_s=pause_s)


def _measure_beside(
    port: int, key: str, rounds: int, disturbance: contextlib.AbstractContextManager[Counter[int]], rng: random.Random
) -> dict[str, Any]:
    """First tokens of a tenant, alone and beside what another one does."""
    tenant = TimedTenant(port, key)

    def measure() -> tuple[dict[str, float] | None, Counter[int]]:
        answers = [tenant.ask(random_ids(16, rng, VOCABULARY)) for _ in range(rounds)]
        return _summary([took_s for _, took_s in answers]), Counter(status for status, _ in answers)

    alone = measure()
    with disturbance as statuses:
        beside = measure()
    figures = {"alone_ms": alone[0], "beside_ms": beside[0], "statuses": dict(beside[1])}
    return {**figures, "statuses_of_other": dict(statuses)}


def _summary(values: Sequence[float]) -> dict[str, float] | None:
    summary = summarize(values)
    return None if summary is None else summary.scaled(1e3, 1)
