"""`trace-cost`: what the access log and traces of requests cost, in processor time of a gateway and of a whole server.

Servers of ours get the same load in turns: without both, with the access log, which is on by default, with all requests traced,
and with a collector that is not there. The collector is a thread of this process that takes everything. The hash chain computes
nothing, so small costs show; with a model the ratios are those of a user.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import click
import psutil
from rich.console import Console

from ops.bench.own_server import free_ports, own_server
from supervisor.bench.serve_load import CONSOLE, LoadPlan, take_samples, write_json
from supervisor.operator.calls import ask_status

_FLAGS = ("--gpus", "0", "--no-standby", "--no-speculation", "--log-level", "info")
_QUIET = ("--set", "gateway.access_log=false")
_GATEWAY = "gateway/0"
_HASH_CHAIN = "hash-chain"


@dataclass
class _TracedServer:
    """One server. Figures of each round: microseconds of processor time of a request by part, and requests a second."""

    name: str
    url: str
    processes: dict[str, psutil.Process]
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    per_s: list[float] = field(default_factory=list)

    def round(self, plan: LoadPlan) -> None:
        """One round of load; it counts."""
        before = self._cpu_s()
        samples = take_samples(plan, Console(quiet=True))
        n = max(samples.n_good, 1)
        for part, cpu_s in self._cpu_s().items():
            self.cpu_us.setdefault(part, []).append((cpu_s - before[part]) / n * 1e6)
        self.per_s.append(n / samples.wall_s)

    def figures(self, others: _TracedServer) -> dict[str, float]:
        """Medians; the median over the rounds of the ratio to the same round of another server, and its middle half."""
        found = {f"{part}_cpu_us": round(statistics.median(each), 1) for part, each in self.cpu_us.items()}
        for part, each in self.cpu_us.items():
            ratios = [own / other for own, other in zip(each, others.cpu_us[part], strict=True)]
            found[f"{part}_cpu_ratio"] = round(statistics.median(ratios), 4)
            low, _, high = statistics.quantiles(ratios, n=4)
            found |= {f"{part}_ratio_p25": round(low, 4), f"{part}_ratio_p75": round(high, 4)}
        return {**found, "per_s": round(statistics.median(self.per_s), 1)}

    def _cpu_s(self) -> dict[str, float]:
        """Processor time of the gateway, and of all processes, from the scheduler of the kernel: to the nanosecond."""
        times = {name: _run_s(process.pid) for name, process in self.processes.items()}
        return {"gateway": times[_GATEWAY], "server": sum(times.values())}


def _run_s(pid: int) -> float:
    total_ns = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total_ns += int(file.read().split()[0])
    return total_ns / 1e9


@click.command(context_settings={"show_default": True})
@click.option("--model", default=_HASH_CHAIN, help="As for `supervisor start`.")
@click.option("--rounds", default=8, type=click.IntRange(2), help="Of each server.")
@click.option("--requests", "n_requests", default=400, help="Of a round.")
@click.option("--concurrency", default=16)
@click.option("--input", "n_prompt", default=128, help="Tokens of a prompt.")
@click.option("--output", "n_output", default=16, help="Tokens of an answer.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(
    model: str, rounds: int, n_requests: int, concurrency: int, n_prompt: int, n_output: int, seed: int, out: str | None
) -> None:  # fmt: skip
    """What the access log and traces of requests cost."""
    rng, load = random.Random(seed), os.getloadavg()[0]
    with ExitStack() as stack:
        collector, nobody = stack.enter_context(_collector()), f"http://127.0.0.1:{free_ports(1)[0]}"
        kinds = {
            "off": (_QUIET, ""), "off, again": (_QUIET, ""), "access log": ((), ""), "all traced": (_QUIET, collector),
            "collector away": (_QUIET, nobody),
        }  # fmt: skip
        servers = [_server(stack, name, (*flags, "--model", model), endpoint) for name, (flags, endpoint) in kinds.items()]
        for number in range(rounds + 1):
            for server in rng.sample(servers, len(servers)):
                plan = LoadPlan(
                    url=server.url, model=model, input_lengths=str(n_prompt), output_lengths=str(n_output),
                    concurrency=concurrency, requests=n_requests, seed=number,
                )  # fmt: skip
                if number:
                    server.round(plan)
                else:
                    take_samples(plan, Console(quiet=True))
    result: dict[str, Any] = {
        "bench": "trace-cost",
        "model": model,
        "rounds": rounds,
        "requests": n_requests,
        "concurrency": concurrency,
    }
    result |= {"input": n_prompt, "output": n_output, **{one.name: one.figures(servers[0]) for one in servers}}
    result["load"] = [round(one, 1) for one in (load, os.getloadavg()[0])]
    CONSOLE.print(result)
    write_json(result, out)


def _server(stack: ExitStack, name: str, flags: tuple[str, ...], endpoint: str) -> _TracedServer:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER": "always_on"} if endpoint else {}
    server = stack.enter_context(own_server([*_FLAGS, *flags], environment=variables))
    processes = {one.name: psutil.Process(one.pid) for one in ask_status(server.run_dir).children if one.pid}
    processes["supervisor"] = psutil.Process(server.pid)
    return _TracedServer(name, server.url, processes)


@contextmanager
def _collector() -> Iterator[str]:
    """The endpoint of a collector that reads and forgets."""

    class Sink(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
