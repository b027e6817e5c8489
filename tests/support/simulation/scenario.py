"""What is drawn from a seed: what may go wrong, the server's settings, and what its clients ask for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from actors.gateway.settings import GatewaySettings
from gpu_workers.settings import WorkerSettings
from supervisor.config import ServerConfig
from tests.support.simulation.clients import Wish
from tests.support.simulation.network import Loss

FAULTS_S = 4.0  # faults happen within about twice this time


@dataclass(frozen=True)
class Scenario:
    """What may go wrong in a run, and how large it is."""

    n_clients: int = 6
    n_deaths: int = 5
    n_pauses: int = 0
    n_disk_failures: int = 0
    loss: Loss = field(default_factory=Loss)
    n_cuts: int = 0
    n_clock_jumps: int = 0
    longest_pause_s: float = 9.0


@dataclass
class Outcome:
    """What one run has shown. `digest`: the same for every run of the same seed."""

    seed: int
    problems: list[str]
    digest: int
    n_messages: int
    n_deaths: int
    virtual_s: float
    log: list[Any]


def scenario_of(seed: int) -> Scenario:
    """The scenario of a seed: deaths always; pauses, full disks, clock jumps, lost and repeated messages in some of them."""
    chance = random.Random(f"scenario {seed}")
    return Scenario(
        n_clients=chance.randrange(2, 9),
        n_deaths=chance.randrange(1, 8),
        n_pauses=chance.choice((0, 0, 1, 3)),
        n_disk_failures=chance.choice((0, 0, 0, 2)),
        n_cuts=chance.choice((0, 0, 3)),
        n_clock_jumps=chance.choice((0, 0, 2)),
        loss=Loss(chance.choice((0.0, 0.0, 0.01, 0.05)), chance.choice((0.0, 0.0, 0.01, 0.05))),
    )


def config_of(chance: random.Random) -> ServerConfig:
    """A small server: few pages and slots, so that sequences wait and are preempted."""
    worker = WorkerSettings(
        max_length=512,
        n_slots=chance.choice((3, 8)),
        max_step_tokens=chance.choice((16, 32, 64)),
        hash_chain_pages=chance.choice((40, 64, 200)),
        max_lease_steps=chance.choice((1, 4)),
    )
    gateway = GatewaySettings(orphan_s=3.0, ack_messages=chance.choice((1, 16)), stream_window_tokens=256)
    return ServerConfig(
        hold_connections=False,  # descriptors between processes are not simulated
        model="hash-chain",
        gpus=0,
        replicas=chance.choice((1, 1, 2)),
        gateways=chance.choice((1, 2)),
        max_length=512,
        speculate=chance.random() < 0.7,
        worker=worker,
        gateway=gateway,
    )


def wishes_of(chance: random.Random, n_clients: int, gateways: list[str]) -> Iterator[Wish]:
    """What the clients ask for. Some prompts have a common beginning; some clients leave before the end."""
    shared = [chance.randrange(1000) for _ in range(chance.randrange(0, 70))]
    for index in range(n_clients):
        n_tokens = chance.randrange(1, 60)
        own = [chance.randrange(1000) for _ in range(chance.randrange(1, 60))]
        yield Wish(
            request=f"request-{index}",
            gateway=chance.choice(gateways),
            prompt=shared + own if chance.random() < 0.5 else own,
            max_tokens=n_tokens,
            seed=chance.choice((0, chance.randrange(1, 2**31))),
            n=chance.choice((1, 1, 1, 2, 3)),
            stop_at=chance.randrange(n_tokens) if chance.random() < 0.3 else -1,
            leaves_after=chance.randrange(n_tokens) if chance.random() < 0.1 else -1,
            asks_after_s=chance.uniform(0.0, FAULTS_S / 2),
        )
