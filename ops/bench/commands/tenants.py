"""`tenants`: what one tenant of a server can do to another: learn from times what it has asked, and take its share.

python -m ops.bench tenants --subject caches     first tokens of prompts that another tenant has sent, and of new ones, in turns
python -m ops.bench tenants --subject flood      first tokens of a tenant alone, and beside a flood of another one
"""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ops.bench.own_server import own_server
from supervisor.bench.prompts import random_ids
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import auc, summarize

_VOCABULARY = 10_000
_FLAGS = ("--model", "hash-chain", "--gpus", "0", "--no-standby", "--api-keys", "--max-length", "4096")
_DEVICE = ("worker.hash_chain_step_s=0.002", "worker.max_step_tokens=64", "worker.n_slots=8", "worker.hash_chain_pages=20000")
_ANSWER_S = 120.0


class _TimedTenant:
    """A tenant with one connection."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, prompt: Sequence[int], max_tokens: int = 1) -> tuple[int, float]:
        """Ask for a whole answer; returns its status, and the seconds that it took. Raises: OSError."""
        body = json.dumps({"prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0})
        began_s = time.perf_counter()
        self._connection.request("POST", "/v1/completions", body, self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, time.perf_counter() - began_s


@click.command(context_settings={"show_default": True})
@click.option("--subject", type=click.Choice(["caches", "flood"]), default="caches")
@click.option("--rounds", default=200, help="Of caches: prompts of each kind. Of flood: requests of the tenant, twice.")
@click.option("--prompt-tokens", default=512, help="Of a prompt.")
@click.option("--flooders", default=32, help="Connections of the flood.")
@click.option("--set", "settings", multiple=True, help="More settings of the server, as SECTION.KEY=VALUE.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(
    subject: str, rounds: int, prompt_tokens: int, flooders: int, settings: Sequence[str], seed: int, out: str | None
) -> None:
    """What one tenant can learn from times of another, and take from it. The server is one of ours, with the hash chain."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tg-") as state:
        given = [part for one in (*_DEVICE, *settings) for part in ("--set", one)]
        with own_server([*_FLAGS, *given, "--state-dir", state]) as server:
            keys = [_key(state, tenant) for tenant in ("one", "other")]
            if subject == "caches":
                result: dict[str, Any] = _measure_caches(server.port, keys, rounds, prompt_tokens, rng)
            else:
                result = _measure_flood(server.port, keys, rounds, prompt_tokens, flooders, rng)
    result = {"bench": "tenants", "subject": subject, "rounds": rounds, "prompt_tokens": prompt_tokens, **result}
    CONSOLE.print(result)
    write_json(result, out)


def _key(state: str, tenant: str) -> str:
    call = [sys.executable, "-m", "supervisor", "keys", "add", "--tenant", tenant, "--state-dir", state]
    return subprocess.run(call, check=True, capture_output=True, text=True, timeout=_ANSWER_S).stdout.strip()


def _measure_caches(port: int, keys: Sequence[str], rounds: int, n_tokens: int, rng: random.Random) -> dict[str, Any]:
    """How well times tell a prompt that was sent before from a new one: 0.5 is a guess, 1.0 is certain."""
    victim, attacker = (_TimedTenant(port, key) for key in keys)
    times: dict[str, list[float]] = {"other": [], "own": [], "new": []}
    for _ in range(rounds):
        prompts = {kind: random_ids(n_tokens, rng, _VOCABULARY) for kind in times}
        victim.ask(prompts["other"])
        attacker.ask(prompts["own"])
        for kind in rng.sample(sorted(times), len(times)):
            times[kind].append(attacker.ask(prompts[kind])[1])
    return {
        "auc_of_prompts_of_the_other_tenant": round(auc(times["other"], times["new"]), 3),
        "auc_of_its_own_prompts": round(auc(times["own"], times["new"]), 3),
        "took_ms": {kind: _summary(values) for kind, values in times.items()},
    }


def _measure_flood(
    port: int, keys: Sequence[str], rounds: int, n_tokens: int, flooders: int, rng: random.Random
) -> dict[str, Any]:
    """First tokens of a tenant, alone and beside a flood of the other one."""
    statuses: Counter[int] = Counter()
    is_over = threading.Event()

    def flood(seed: int) -> None:
        tenant, chance = _TimedTenant(port, keys[0]), random.Random(seed)
        while not is_over.is_set():
            status, _ = tenant.ask(random_ids(n_tokens, chance, _VOCABULARY), 64)
            statuses[status] += 1
            if status != 200:
                is_over.wait(0.05)

    other = _TimedTenant(port, keys[1])

    def measure() -> tuple[dict[str, float] | None, Counter[int]]:
        answers = [other.ask(random_ids(16, rng, _VOCABULARY)) for _ in range(rounds)]
        return _summary([took_s for _, took_s in answers]), Counter(status for status, _ in answers)

    alone = measure()
    threads = [threading.Thread(target=flood, args=(seed,), daemon=True) for seed in range(flooders)]
    for thread in threads:
        thread.start()
    time.sleep(2.0)  # until the queue is as long as it becomes
    beside = measure()
    is_over.set()
    for thread in threads:
        thread.join(_ANSWER_S)
    figures = {"alone_ms": alone[0], "beside_flood_ms": beside[0], "statuses": dict(beside[1])}
    return {**figures, "statuses_of_flood": dict(statuses)}


def _summary(values: Sequence[float]) -> dict[str, float] | None:
    summary = summarize(values)
    return None if summary is None else summary.scaled(1e3, 1)
