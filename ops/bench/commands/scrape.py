"""`scrape`: how long /metrics takes, and what it costs, where many tenants have limits and have asked for something.

Two servers of ours with the hash chain, one of them without vLLM's names, are scraped in turns.
"""

from __future__ import annotations

import http.client
import json
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil

from messages.access.api_key import Role
from ops.bench.own_keys import add_key
from ops.bench.own_server import own_server
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import summarize
from supervisor.drill.streams import bearer
from supervisor.operator.calls import ask_status

_FLAGS = ("--model", "hash-chain", "--gpus", "0", "--no-standby", "--log-level", "warning", "--api-keys")
_LIMITS = "[tenants.default]\ntokens_per_day = 1000000000\n"
_ANSWER_S = 60.0
_KEY_ATTEMPTS, _KEY_S = 100, 0.1  # gateways read new keys within a second


@dataclass
class _Scraped:
    """One server. `took_s`: of each scrape; `cpu_s`: of its gateway for all of them together."""

    connection: http.client.HTTPConnection
    headers: dict[str, str]
    gateway: psutil.Process
    took_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    n_bytes: int = 0
    n_series: int = 0

    def scrape(self) -> None:
        """One scrape."""
        before, began_s = self._cpu_s(), time.perf_counter()
        status, text = _called(self.connection, "GET", "/metrics", "", self.headers)
        self.took_s.append(time.perf_counter() - began_s)
        self.cpu_s += self._cpu_s() - before
        if status != 200:
            raise click.ClickException(f"/metrics: HTTP {status}: {text[:200]!r}")
        self.n_bytes, self.n_series = len(text), sum(not line.startswith(b"#") for line in text.splitlines())

    def figures(self) -> dict[str, Any]:
        """Times in ms."""
        summary = summarize(self.took_s)
        times = {} if summary is None else summary.scaled(1e3, 2)
        cpu_ms = round(self.cpu_s / len(self.took_s) * 1e3, 2)
        return {**times, "gateway_cpu_ms": cpu_ms, "bytes": self.n_bytes, "series": self.n_series}

    def _cpu_s(self) -> float:
        times = self.gateway.cpu_times()
        return times.user + times.system


@click.command(context_settings={"show_default": True})
@click.option("--tenants", "n_tenants", default=100)
@click.option("--replicas", default=1)
@click.option("--scrapes", "n_scrapes", default=100, help="Of each server.")
@click.option("--pause-s", default=1.1, help="Between scrapes of a server. Below a second they share what the supervisor says.")
@click.option("--out", help="Append the JSON here.")
def command(n_tenants: int, replicas: int, n_scrapes: int, pause_s: float, out: str | None) -> None:
    """How long a scrape of /metrics takes."""
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-")))
        (folder / "limits.toml").write_text(_LIMITS)
        flags = (*_FLAGS, "--config", str(folder / "limits.toml"), "--replicas", str(replicas))
        settings = {"with vLLM's names": (), "without": ("--set", "gateway.vllm_metrics=false")}
        servers = {name: _scraped(stack, [*flags, *more], n_tenants) for name, more in settings.items()}
        for _ in range(n_scrapes):
            for server in servers.values():
                server.scrape()
            time.sleep(pause_s)
    result: dict[str, Any] = {
        "bench": "scrape",
        "tenants": n_tenants,
        "replicas": replicas,
        "scrapes": n_scrapes,
        "pause_s": pause_s,
    }
    result |= {name: server.figures() for name, server in servers.items()}
    result["load"] = [round(one, 1) for one in (load, os.getloadavg()[0])]
    CONSOLE.print(result)
    write_json(result, out)


def _scraped(stack: ExitStack, arguments: list[str], n_tenants: int) -> _Scraped:
    """A server in which each tenant has asked for something."""
    server = stack.enter_context(own_server(arguments))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_ANSWER_S)
    for number in range(n_tenants):
        _ask(connection, bearer(add_key(server.run_dir, f"tenant-{number}")))
    gateway = next(child for child in ask_status(server.run_dir).children if child.name == "gateway/0")
    return _Scraped(connection, bearer(add_key(server.run_dir, "ops", Role.ADMIN)), psutil.Process(gateway.pid))


def _ask(connection: http.client.HTTPConnection, headers: dict[str, str]) -> None:
    """A request with a new key, until the gateway knows it."""
    body = json.dumps({"tokens": [1, 2, 3], "max_tokens": 2})
    for _ in range(_KEY_ATTEMPTS):
        status, answer = _called(connection, "POST", "/v1/generate", body, {"Content-Type": "application/json", **headers})
        if status == 200:
            return
        if status != 401:
            raise click.ClickException(f"HTTP {status}: {answer[:200]!r}")
        time.sleep(_KEY_S)
    raise click.ClickException("expected a server that knows the new key")


def _called(
    connection: http.client.HTTPConnection, method: str, path: str, body: str, headers: dict[str, str]
) -> tuple[int, bytes]:
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()
