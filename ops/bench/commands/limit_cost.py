"""`limit-cost`: what API keys and limits of tenants cost a request, in processor time of the gateway and of the accounts.

Three servers of ours with the hash chain get the same requests in turns: without keys, with keys, and with limits. Processor
time says more than the wall clock on a machine with other work.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil

from ops.bench.own_keys import add_key
from ops.bench.own_server import own_server
from supervisor.bench.prompts import random_ids
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.drill.streams import bearer
from supervisor.operator.calls import ask_status

_VOCABULARY = 10_000
_PROMPT_TOKENS = 16
_FLAGS = ("--model", "hash-chain", "--gpus", "0", "--no-standby", "--log-level", "warning")
_LIMITS = """[tenants.default]
requests_per_min = 1000000
tokens_per_min = 1000000000
max_sequences = 1000
tokens_per_day = 1000000000
"""
_ANSWER_S = 120.0
_ROLES = ("gateway/0", "accounts/0")


@dataclass
class _Subject:
    """One server. `cpu_us`: by process, microseconds of a request in each round; `took_ms`: of each request."""

    name: str
    connection: http.client.HTTPConnection
    headers: dict[str, str]
    processes: dict[str, psutil.Process]
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    took_ms: list[float] = field(default_factory=list)

    def round(self, n_requests: int, max_tokens: int, rng: random.Random, *, is_counted: bool) -> None:
        """So many requests, one after the other."""
        before = self._cpu_s()
        for _ in range(n_requests):
            prompt = random_ids(_PROMPT_TOKENS, rng, _VOCABULARY)
            body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0})
            began_s = time.perf_counter()
            self.connection.request("POST", "/v1/completions", body, self.headers)
            answer = self.connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                raise click.ClickException(f"{self.name}: HTTP {answer.status}: {content[:200]!r}")
            if is_counted:
                self.took_ms.append((time.perf_counter() - began_s) * 1e3)
        for role, cpu_s in self._cpu_s().items() if is_counted else ():
            self.cpu_us.setdefault(role, []).append((cpu_s - before[role]) / n_requests * 1e6)

    def figures(self) -> dict[str, float]:
        """Medians."""
        found = {f"{role.partition('/')[0]}_cpu_us": round(statistics.median(each)) for role, each in self.cpu_us.items()}
        return {**found, "took_ms_p50": round(statistics.median(self.took_ms), 2)}

    def _cpu_s(self) -> dict[str, float]:
        times = {role: process.cpu_times() for role, process in self.processes.items()}
        return {role: one.user + one.system for role, one in times.items()}


@click.command(context_settings={"show_default": True})
@click.option("--rounds", default=10, help="Of each server.")
@click.option("--requests", "n_requests", default=300, help="Of a round, one after the other.")
@click.option("--max-tokens", default=4, help="Of an answer.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(rounds: int, n_requests: int, max_tokens: int, seed: int, out: str | None) -> None:
    """What API keys and limits of tenants cost a request."""
    rng, load = random.Random(seed), os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-")))
        limits = folder / "limits.toml"
        limits.write_text(_LIMITS)
        arguments = {"no keys": (), "API keys": ("--api-keys",), "limits": ("--api-keys", "--config", str(limits))}
        subjects = [_subject(stack, name, [*_FLAGS, *more]) for name, more in arguments.items()]
        for number in range(rounds + 1):
            for subject in rng.sample(subjects, len(subjects)):
                subject.round(n_requests, max_tokens, rng, is_counted=number > 0)
    result: dict[str, Any] = {subject.name: subject.figures() for subject in subjects}
    result = {"bench": "limit-cost", "rounds": rounds, "requests": n_requests, "max_tokens": max_tokens, **result}
    result["load"] = [round(one, 1) for one in (load, os.getloadavg()[0])]
    CONSOLE.print(result)
    write_json(result, out)


def _subject(stack: ExitStack, name: str, arguments: list[str]) -> _Subject:
    server = stack.enter_context(own_server(arguments))
    headers = {"Content-Type": "application/json"}
    if "--api-keys" in arguments:
        headers |= bearer(add_key(server.run_dir, "tenant"))
    processes = {one.name: psutil.Process(one.pid) for one in ask_status(server.run_dir).children if one.name in _ROLES}
    return _Subject(name, http.client.HTTPConnection("127.0.0.1", server.port, timeout=_ANSWER_S), headers, processes)
