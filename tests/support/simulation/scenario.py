"""What is drawn from a seed: what may go wrong, the server's settings, and what its clients ask for."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from actors.gateway.settings import GatewaySettings
from actors.pages.eviction.choice import EvictionName
from actors.pages.tier_loads import TierLoads
from actors.scheduler.sequences.policy import PolicyName
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.disk.place_tag import place_bytes
from gpu_workers.settings import HostCacheDtype, WorkerSettings
from messages.steps import PAGE_TOKENS
from supervisor.config.fallback_settings import FallbackSettings
from supervisor.config.server_config import ServerConfig, SupervisorSettings
from tests.support.simulation.edges import Count, Fault
from tests.support.simulation.network import Loss

_EMBEDDING_DEADLINES = SupervisorSettings(cpu_step_s=5.0, first_step_s=5.0)  # then a batch of texts counts as hung
FALLBACK_VOCABULARY = 1009  # more than the ids in prompts
_FALLBACK = FallbackSettings(model_name="small", max_length=512, hash_chain_vocabulary=FALLBACK_VOCABULARY)
FAULTS_S = 3.0  # faults happen within about twice this time


class Outage(Enum):
    """How a whole server ends, before it is started again; see faults/outages.py."""

    STOP = "stop"
    DRAIN = "drain"
    DEATH = "death"


_OUTAGES = (*((),) * 12, *((outage,) for outage in Outage), (Outage.DEATH, Outage.STOP))


@dataclass(frozen=True)
class Scenario:
    """What may go wrong in a run, and how large it is."""

    n_clients: int = 6
    n_deaths: int = 5
    n_pauses: int = 0
    n_disk_failures: int = 0
    n_disk_hangs: int = 0
    loss: Loss = field(default_factory=Loss)
    n_cuts: int = 0
    n_clock_jumps: int = 0
    n_supervisor_deaths: int = 0
    n_device_faults: int = 0
    n_aims: int = 0  # faults that wait for an edge; see edges.py
    longest_pause_s: float = 9.0
    tp: int = 1  # ranks of a stage
    pp: int = 1  # stages of a gang
    n_rolls: int = 0  # rolling restarts
    n_parent_deaths: int = 0
    vocabulary: int = 32_768  # of the hash chain; in a small one tokens repeat, so that there are drafts, some of them right
    n_flips: int = 0  # of bits in a journal, most of them just before its gateway dies
    n_common_pauses: int = 0  # of all processes at the same time
    outages: tuple[Outage, ...] = ()  # the whole server ends, and is started again
    n_embedding_clients: int = 0  # 0: the server has no embedder
    n_embedder_aims: int = 0  # faults that wait for an edge at which texts or vectors pass; see embedding.py
    has_tenants: bool = False  # all clients belong to a tenant with limits, and there are accounts
    n_account_aims: int = 0  # faults that wait for an edge at which limits are asked for, or usage is told
    n_resets: int = 0  # an operator lets caches forget
    n_cordons: int = 0  # an operator takes a replica out of use, or back
    eviction: EvictionName = EvictionName.LRU
    policy: PolicyName = PolicyName.PRIORITY
    n_host_places: int = 0  # of the host tier, if they hold pages as they are
    host_cache_dtype: HostCacheDtype = "same"
    copies_beside: bool = False  # pages are copied to and from the host tier beside the steps, as on a GPU; see copies/
    copy_faults: float = 0.0  # share of these copies with which something happens while faults happen
    are_returning: bool = False  # clients ask one after the other, with prompts that have left the device
    n_disk_places: int = 0  # of the disk tier
    disk_tier_faults: float = 0.0  # share of its accesses that fail while faults happen, and share of those that are slow
    n_disk_tier_harms: int = 0  # its files are damaged, shortened or removed
    n_replicas: int = 0  # 0: drawn from the seed
    n_least_pages: int = 0  # in use at the least, where their number follows the load
    n_least_places: int = 0  # the same of the host tier
    n_exchange_places: int = 0  # of each rank; more than 0: there are two replicas, with vaults
    asks_alike: bool = False  # clients ask the same things of one gateway, at about the same time, and often leave
    is_flooded: bool = False  # the gateways and schedulers have small bounds for what waits
    has_fallback: bool = False  # a fallback model, with a vocabulary of its own, answers while the main one is not ready
    sought: tuple[str, Fault] | None = None  # an edge at which this fault shall happen, soon after the beginning

    @property
    def is_harmful(self) -> bool:
        """Processes may die of something else than a rolling restart."""
        deadly = (
            self.n_deaths,
            self.n_pauses,
            self.n_device_faults,
            self.n_aims + self.n_embedder_aims + self.n_account_aims,
            self.n_supervisor_deaths,
            self.n_flips,
        )
        return any((*deadly, self.n_common_pauses, self.outages))

    @property
    def is_calm(self) -> bool:
        """Nothing dies or is replaced, but all processes may pause together."""
        return not replace(self, n_common_pauses=0).is_harmful and not self.n_rolls


@dataclass
class Outcome:
    """What one run has shown. `digest`: the same for every run of the same seed."""

    seed: int
    problems: list[str]
    digest: str
    n_messages: int
    n_deaths: int
    virtual_s: float
    log: list[Any]
    hit: Count  # which faults have hit which edges
    reached: Counter[str]  # how often each edge was reached
    n_adopted: int  # pages
    n_kept: int  # positions in partly filled pages


def policy_for(seed: int) -> PolicyName:
    """The scheduling policy of a seed: any of them."""
    return random.Random(f"policy {seed}").choice(list(PolicyName))


def scenario_of(seed: int) -> Scenario:
    """The scenario of a seed: deaths always; pauses, full disks, clock jumps, lost and repeated messages in some of them."""
    names = ("scenario", "more", "whole server", "host tier", "exchange", "least size", "disk tier")
    chance, more, whole, tiered, exchanging, sized, on_disk = (random.Random(f"{name} {seed}") for name in names)
    n_host_places = tiered.choice((5, 40, 400)) if tiered.random() < 0.25 else 0
    has_disk = n_host_places > 0 and on_disk.random() < 0.5
    n_host_places = on_disk.choice((4, 8, 16)) if has_disk else n_host_places  # fewer, so that some are overwritten there
    scenario = Scenario(
        n_clients=chance.randrange(2, 9) + (10 if has_disk else 5 if n_host_places else 0),  # so that pages are evicted
        n_host_places=n_host_places,
        n_least_pages=sized.choice((1, 4, 12)) if sized.random() < 0.3 else 0,
        host_cache_dtype=tiered.choice(("same", "same", "int4", "adaptive")) if n_host_places else "same",
        n_disk_places=on_disk.choice((6, 60, 600)) if has_disk else 0,
        disk_tier_faults=on_disk.choice((0.0, 0.02, 0.2)) if has_disk else 0.0,
        n_disk_tier_harms=on_disk.choice((0, 0, 2)) if has_disk else 0,
        n_deaths=chance.choice((0, 1, 2, 3, 5, 7)),
        n_device_faults=chance.choice((0, 0, 1)),
        n_aims=chance.choice((1, 2, 4)),
        n_pauses=chance.choice((0, 0, 1, 3)),
        n_disk_failures=chance.choice((0, 0, 0, 2)),
        n_disk_hangs=chance.choice((0, 0, 0, 1)),
        n_cuts=chance.choice((0, 0, 3)),
        n_clock_jumps=chance.choice((0, 0, 2)),
        n_supervisor_deaths=chance.choice((0, 0, 0, 1, 2)),
        loss=Loss(*(chance.choice((0.0, 0.0, 0.01, 0.05)) for _ in range(3))),
        tp=more.choice((1, 1, 1, 1, 2, 3)),
        pp=random.Random(f"stages {seed}").choice((1, 1, 1, 1, 2, 3)),
        n_rolls=more.choice((0, 0, 0, 1)),
        vocabulary=more.choice((32_768, 32_768, 4)),
        n_parent_deaths=more.choice((0, 0, 0, 1, 2)),
        outages=whole.choice(_OUTAGES),
        n_flips=whole.choice((0, 0, 0, 1, 3)),
        n_common_pauses=whole.choice((0, 0, 0, 0, 0, 0, 0, 1)),
        longest_pause_s=whole.choice((9.0, 9.0, 9.0, 30.0)),
        n_exchange_places=exchanging.choice((4, 20, 100)) if exchanging.random() < 0.25 else 0,
        n_cordons=random.Random(f"cordons {seed}").choice((0, 0, 0, 3)),
        eviction=random.Random(f"eviction {seed}").choice(list(EvictionName)),
        policy=policy_for(seed),
    )
    return _with_least_places(_with_copies(scenario, random.Random(f"copies {seed}")), random.Random(f"places {seed}"))


def _with_copies(scenario: Scenario, chance: random.Random) -> Scenario:
    """The same with copies beside steps, in some of those that have a host tier. GPUs give no page back."""
    if not scenario.n_host_places or chance.random() >= 0.7:
        return scenario
    faults, are_returning = chance.choice((0.0, 0.05, 0.3)), chance.random() < 0.7
    return replace(scenario, copies_beside=True, copy_faults=faults, are_returning=are_returning, n_least_pages=0)


def _with_least_places(scenario: Scenario, chance: random.Random) -> Scenario:
    """The same with a host tier that follows the load, in some of those whose tier can do that."""
    is_able = scenario.n_host_places > 0 and not scenario.copies_beside and scenario.host_cache_dtype != "adaptive"
    return replace(scenario, n_least_places=chance.choice((1, 3))) if is_able and chance.random() < 0.5 else scenario


def config_of(chance: random.Random, scenario: Scenario) -> ServerConfig:
    """A small server: few pages and slots, so that sequences wait and are preempted."""
    worker = WorkerSettings(
        max_length=512,
        n_slots=chance.choice((3, 8)),
        max_step_tokens=chance.choice((16, 32, 64)),
        hash_chain_pages=16 if scenario.n_host_places else chance.choice((40, 64, 200) if scenario.sought is None else (40,)),
        max_lease_steps=chance.choice((1, 4)),
        hash_chain_vocabulary=scenario.vocabulary,
        exchange_bytes=scenario.n_exchange_places * PAGE_TOKENS * 8,
        host_cache_bytes=scenario.n_host_places * PAGE_TOKENS * 8,
        kv_least_bytes=scenario.n_least_pages * PAGE_TOKENS * 8,
        host_cache_least_bytes=scenario.n_least_places * PAGE_TOKENS * 8,
        host_cache_dtype=scenario.host_cache_dtype,
        disk_cache_bytes=scenario.n_disk_places * place_bytes(PAGE_TOKENS * 8),
    )
    gateway = _gateway(chance, scenario)
    return ServerConfig(
        vault=chance.random() < 0.6 or scenario.n_exchange_places > 0,
        standby=chance.random() < 0.3,
        model="hash-chain",
        **_other_models(scenario),
        gpus=0,
        tp=scenario.tp,
        pp=scenario.pp,
        replicas=_n_replicas(scenario, chance.choice((1, 1, 2))),
        gateways=chance.choice((1, 2)),
        max_length=512,
        speculate=chance.random() < 0.7,
        worker=worker,
        gateway=gateway,
        scheduler=_scheduler(scenario),
    )


def _scheduler(scenario: Scenario) -> SchedulerSettings:
    return SchedulerSettings(
        policy=scenario.policy,
        eviction=scenario.eviction,
        tier_loads=TierLoads.ALWAYS,
        kv_quiet_s=0.4,
        host_quiet_s=0.4,
        urgent_step_s=1e-6 if scenario.n_clients % 2 else 0.0,
        kv_spare_share=0.0,
        degraded_wait_s=0.02 if scenario.is_flooded else 0.0,
    )


def _gateway(chance: random.Random, scenario: Scenario) -> GatewaySettings:
    return GatewaySettings(
        orphan_s=15.0,
        prefix_wait_s=0.005,
        fallback_after_s=0.05,
        ack_messages=chance.choice((1, 16)),
        stream_window_tokens=256,
        max_queued_tokens=400 if scenario.is_flooded else 1 << 24,
        max_active_requests=12 if scenario.is_flooded else 4096,
        answer_cache="exact" if scenario.n_clients % 2 else "off",
        answer_coalescing=scenario.asks_alike or scenario.n_clients % 4 < 2,
    )


def _other_models(scenario: Scenario) -> dict[str, Any]:
    """The settings for models beside the main one."""
    embedding = {"embedding_model": "hash", "supervisor": _EMBEDDING_DEADLINES} if scenario.n_embedding_clients else {}
    return embedding | ({"fallback_model": "hash-chain", "fallback": _FALLBACK} if scenario.has_fallback else {})


def _n_replicas(scenario: Scenario, drawn: int) -> int:
    usual = scenario.n_replicas or drawn
    return max(usual, 2) if scenario.n_exchange_places else usual
