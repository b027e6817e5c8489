"""One server's part of a leak watch: the server, its requests and its deaths, in one process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ops.bench.leaks.watch import LeakWatch, Watched, WatchPlan
from ops.bench.own_server import own_server

_FLAGS = (
    "--log-level", "warning", "--set", "supervisor.actor_restarts=1000000", "--set", "supervisor.gang_restarts=1000000",
    "--set", "gateway.retention_s=1", "--set", "gateway.orphan_s=1",
)  # fmt: skip
_SEEDS_APART = 1_000_003


@dataclass(frozen=True)
class WatchPart:
    """What is done to one server."""

    plan: WatchPlan
    server_args: Sequence[str]
    port: int

    def split(self, ports: Sequence[int]) -> list[WatchPart]:
        """The parts of as many servers as there are ports. Together they have all requests and all restarts."""
        n, plan = len(ports), self.plan
        return [
            WatchPart(
                replace(
                    plan,
                    n_requests=-(-plan.n_requests // n),
                    n_restarts=-(-plan.n_restarts // n),
                    seed=plan.seed + _SEEDS_APART * index,
                ),
                self.server_args,
                port,
            )
            for index, port in enumerate(ports)
        ]


def watch_part(part: WatchPart) -> Watched:
    """Start a server, carry out its part, end the server. Raises: ServerDidNotStart, DidNotComeBack, WrongAnswer."""
    with tempfile.TemporaryDirectory(prefix="tardigrade-leaks-") as folder:
        state, temporary = Path(folder) / "state", Path(folder) / "tmp"
        temporary.mkdir()
        flags = ["--model", "hash-chain", "--gpus", "0", "--state-dir", str(state), *_FLAGS, *part.server_args]
        with own_server(flags, environment={"TMPDIR": str(temporary)}, port=part.port) as server:
            return asyncio.run(LeakWatch(server, part.plan, (state, temporary, server.run_dir)).run())
