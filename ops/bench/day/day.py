"""One long run: a server of our own with API keys, clients of several tenants, and a killer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from messages.ids import role_of
from messages.run_dir import zeromq_endpoint
from ops.bench.day.clients import DayClients, Tenant
from ops.bench.day.killer import Killer
from ops.bench.day.visits import DayFigures, figures_of
from ops.bench.own_keys import add_key
from ops.bench.own_server import OwnServer, own_server
from supervisor.drill.streams import StreamRequest, find_model
from supervisor.operator.calls import ask_status

# a day has more deaths than a server takes for a fault of its own
_UNBOUNDED = ("supervisor.actor_restarts=1000000", "supervisor.gang_restarts=1000000", "supervisor.restart_attempts=1000")


@dataclass(frozen=True)
class DayPlan:
    """What is done. `think_s`: of the busiest tenant; each further one waits longer by this much.

    `roles`: to kill; empty: all."""

    model: str
    length_s: float
    n_tenants: int
    n_clients: int
    think_s: float
    prompt_words: int
    output_tokens: int
    kill_every_s: float
    deadline_s: float
    step_ms: float
    roles: Sequence[str]
    server_args: Sequence[str]
    seed: int

    @property
    def is_chain(self) -> bool:
        """True if the model is the hash chain, whose tokens are known."""
        return self.model == "hash-chain"

    @property
    def arguments(self) -> list[str]:
        """The arguments of `supervisor start`."""
        sets = [*_UNBOUNDED, *([f"worker.hash_chain_step_s={self.step_ms / 1e3}"] if self.is_chain else [])]
        flags = ["--model", self.model, "--api-keys", "--log-level", "warning"]
        return flags + [part for one in sets for part in ("--set", one)] + list(self.server_args)


def run_day(plan: DayPlan, say: Callable[[str], None]) -> DayFigures:
    """Start a server, let clients ask and processes die, end the server.

    `say` gets a line for each death. Raises: ServerDidNotStart, NoServer, httpx.HTTPError, ValueError.
    """
    with own_server(plan.arguments) as server:
        return asyncio.run(_day(plan, server, say))


async def _day(plan: DayPlan, server: OwnServer, say: Callable[[str], None]) -> DayFigures:
    tenants = _tenants(plan, server.run_dir)
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {tenants[0].key}"}) as client:
        model = await find_model(client, server.url)
    report = await asyncio.to_thread(ask_status, server.run_dir)
    n_gateways = sum(role_of(child.name) == "gateway" for child in report.children)
    endpoints = [zeromq_endpoint(server.run_dir, index) for index in range(n_gateways)]
    sizes = (plan.prompt_words, plan.output_tokens, plan.deadline_s)
    options = StreamRequest(server.url, model, *sizes, ignores_end=True, api_key="")
    killer = await asyncio.to_thread(Killer, server.run_dir, plan.kill_every_s, plan.roles, plan.seed, say)
    clients = DayClients(options, endpoints, tenants, plan.is_chain, plan.seed)
    began_s = time.monotonic()
    until_s = began_s + plan.length_s
    await asyncio.gather(clients.run(until_s, lambda: killer.deaths), killer.run(until_s))
    return figures_of(clients.visits, killer.deaths, began_s)


def _tenants(plan: DayPlan, state_dir: Path) -> list[Tenant]:
    """The tenants, with new keys in the server's file."""
    tenants = list[Tenant]()
    for index in range(plan.n_tenants):
        name = f"team-{index + 1}"
        n_clients = plan.n_clients // plan.n_tenants + (index < plan.n_clients % plan.n_tenants)
        tenants.append(Tenant(name, add_key(state_dir, name), n_clients, plan.think_s * (index + 1)))
    return tenants
