"""One server's part of a campaign: the server, its clients and its faults, in one process. Parts are added up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from messages.ids import role_of
from ops.bench.campaign.campaign import CampaignPlan, CampaignResult, run_campaign
from ops.bench.campaign.fault_schedule import Harm, ScheduledFault
from ops.bench.campaign.oracle import Oracle
from ops.bench.own_keys import add_key
from ops.bench.own_server import OwnServer, own_server
from supervisor.bench.serve_load import CONSOLE
from supervisor.drill.figures import Tally, add_up, outcome_of, tallies_of
from supervisor.drill.streams import StreamRequest, bearer, find_model
from supervisor.operator.calls import ask_status

_UNBOUNDED = ("supervisor.actor_restarts=1000000", "supervisor.gang_restarts=1000000", "supervisor.restart_attempts=1000")
_SEEDS_APART = 1_000_003
_ERRORS = 8


@dataclass(frozen=True)
class CampaignPart:
    """What is done to one server. See the options of `kill-drill`."""

    model: str
    step_ms: float
    n_streams: int
    prompt_words: int
    output_tokens: int
    n_faults: int
    targets: Sequence[str]
    harms: Sequence[Harm]
    drains: bool
    sampled_share: float
    deadline_s: float
    limit_s: float
    server_args: Sequence[str]
    seed: int
    port: int
    n_alike: int = 1  # streams that ask the same
    name: str = ""  # said before each line about it

    @property
    def arguments(self) -> list[str]:
        """The arguments of `supervisor start`."""
        sets = [*_UNBOUNDED, *([f"worker.hash_chain_step_s={self.step_ms / 1e3}"] if self.is_chain else [])]
        flags = ["--model", self.model, "--gpus", "0", "--log-level", "warning"]
        return flags + [part for one in sets for part in ("--set", one)] + list(self.server_args)

    @property
    def is_chain(self) -> bool:
        """True if the model is the hash chain, whose tokens are known."""
        return self.model == "hash-chain"

    def state_dir(self, server: OwnServer) -> Path:
        """Where this server keeps its files."""
        given = list(self.server_args)
        return Path(given[given.index("--state-dir") + 1]) if "--state-dir" in given else server.run_dir

    def split(self, ports: Sequence[int]) -> list[CampaignPart]:
        """The parts of as many servers as there are ports, with seeds of their own. Together they have all faults."""
        n = len(ports)
        return [
            replace(
                self,
                n_faults=self.n_faults // n + (index < self.n_faults % n),
                seed=self.seed + _SEEDS_APART * index,
                port=port,
                name=f"server {index}: " if n > 1 else "",
            )
            for index, port in enumerate(ports)
        ]


@dataclass
class PartResult:
    """What one server's part has shown, or several together. `outcomes`: of all streams. `logs`: kept logs of servers."""

    tallies: list[Tally] = field(default_factory=list)
    inflicted: list[ScheduledFault] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    def add(self, other: PartResult) -> None:
        """Add what another part has shown."""
        self.tallies = add_up([*self.tallies, *other.tallies])
        self.inflicted += other.inflicted
        self.outcomes += other.outcomes
        self.errors = sorted({*self.errors, *other.errors})
        self.logs += other.logs


def run_part(part: CampaignPart) -> PartResult:
    """Start a server, carry out its part, end the server. Its log is kept if an answer was not right.

    Raises: ConfigError, ServerDidNotStart, NoServer, TimeoutError, ValueError.
    """
    with own_server(part.arguments, port=part.port, keeps_log=True) as server:
        result, oracle = asyncio.run(_drill(part, server))
    found = PartResult(
        tallies_of(result.rounds, oracle.right),
        result.inflicted,
        Counter(outcome_of(stream, oracle.right) for stream in result.streams),
        sorted({stream.error for stream in result.streams if stream.error})[:_ERRORS],
    )
    if found.outcomes["right"] == len(result.streams):
        server.log.unlink()
    else:
        found.logs.append(str(server.log))
    return found


async def _drill(part: CampaignPart, server: OwnServer) -> tuple[CampaignResult, Oracle]:
    report = await asyncio.to_thread(ask_status, server.run_dir)
    has_keys = any(role_of(child.name) == "accounts" for child in report.children)
    api_key = await asyncio.to_thread(add_key, part.state_dir(server), "drill") if has_keys else ""
    async with httpx.AsyncClient(headers=bearer(api_key)) as client:
        model = await find_model(client, server.url)
    sizes = (part.prompt_words, part.output_tokens, part.deadline_s)
    options = StreamRequest(server.url, model, *sizes, ignores_end=True, api_key=api_key)
    oracle = Oracle(options, part.n_streams, part.sampled_share, part.seed, n_alike=part.n_alike)
    if not part.is_chain:
        await oracle.learn()
    plan = CampaignPlan(
        options=options,
        run_dir=server.run_dir,
        n_faults=part.n_faults,
        make_streams=oracle.streams,
        seed=part.seed,
        targets=part.targets,
        harms=part.harms,
        drains=part.drains,
        limit_s=part.limit_s,
    )
    return await run_campaign(plan, lambda line: CONSOLE.print(f"{part.name}{line}", highlight=False)), oracle
