"""One server under measurement: its load, and the processor time of all its processes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum

import click
from rich.console import Console

from ops.bench.own_server import own_server
from ops.bench.watching.watchers import watching
from supervisor.bench.samples import Samples
from supervisor.bench.serve_load import LoadPlan, first_model, take_samples
from supervisor.operator.calls import ask_status

_SILENT = (
    "--set", "gateway.access_log=false", "--set", "log_file_bytes=0", "--set", "gateway.vllm_metrics=false",
    "--set", "gpu_monitor.enabled=false",
)  # fmt: skip
# as for a server under systemd, whose log is no terminal; a client of the environment would trace some requests
_FLAGS = ("--no-standby", "--log-level", "info")
_NO_TRACES = {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_SDK_DISABLED": "true"}


class WatchKind(StrEnum):
    """How a server is watched while it is measured."""

    OFF = "off"  # everything off that settings can turn off
    DEFAULT = "default"  # what is on without any flag; nobody looks
    WATCHED = "watched"  # the same servers, with a scrape a second and an open page


@dataclass
class Measured:
    """What the rounds of a server have found, in one kind. One figure for each round."""

    tokens_per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)  # of all its processes, for a token
    n_scrapes: int = 0
    n_page_events: int = 0


@dataclass
class Served:
    """One server. `by_kind`: what was measured of it so far."""

    url: str
    pids: tuple[int, ...]
    by_kind: dict[WatchKind, Measured]

    def round(self, plan: LoadPlan, kind: WatchKind) -> None:
        """One round of load; it counts. Raises: click.ClickException if a request failed; NotWatched."""
        found = self.by_kind[kind]
        with watching(self.url) if kind == WatchKind.WATCHED else nullcontext() as watched:
            before_s = self._cpu_s()
            samples = self.load(plan)
            found.cpu_us.append((self._cpu_s() - before_s) / samples.output_tokens * 1e6)
            found.tokens_per_s.append(samples.output_tokens / samples.wall_s)
            if watched is not None:
                found.n_scrapes += watched.n_scrapes
                found.n_page_events += watched.n_page_events

    def _cpu_s(self) -> float:
        """Processor time of its processes so far. Raises: click.ClickException if one of them has ended."""
        try:
            return _cpu_s(self.pids)
        except FileNotFoundError:
            raise click.ClickException(f"{self.url}: a process of the server has ended; is the machine too busy?") from None

    def load(self, plan: LoadPlan) -> Samples:
        """The load of a round. Raises: click.ClickException if a request failed."""
        samples = take_samples(replace(plan, url=self.url, model=first_model(self.url)), Console(quiet=True))
        if samples.errors or not samples.n_good:
            raise click.ClickException(f"{self.url}: expected answers without errors, got {samples.errors}")
        return samples

    def requests_for(self, plan: LoadPlan, round_s: float) -> int:
        """How many requests take about `round_s`: a multiple of the clients. Raises: click.ClickException."""
        self.load(plan)  # the first one compiles, and fills caches
        samples = self.load(replace(plan, seed=plan.seed + 1))
        return math.ceil(round_s * samples.n_good / samples.wall_s / plan.concurrency) * plan.concurrency


@contextmanager
def served(kinds: tuple[WatchKind, ...], arguments: tuple[str, ...]) -> Iterator[Served]:
    """A server of ours for the length of a measurement, set for `kinds`. Raises: ServerDidNotStart."""
    silent = _SILENT if WatchKind.OFF in kinds else ()
    with own_server([*_FLAGS, *silent, *arguments], environment=_NO_TRACES) as server:
        children = [child.pid for child in ask_status(server.run_dir).children if child.pid]
        yield Served(server.url, (server.pid, *children), {kind: Measured() for kind in kinds})


def _cpu_s(pids: tuple[int, ...]) -> float:
    """Processor time of these processes so far, from the scheduler of the kernel, which knows it to the nanosecond."""
    total_ns = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total_ns += int(file.read().split()[0])
    return total_ns / 1e9
