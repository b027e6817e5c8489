"""From a placement, the times of its steps and a load to a plan: what fits, what is carried, what limits it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from messages.steps import PAGE_TOKENS
from supervisor.capacity.needs import HostNeeds, needs_of
from supervisor.capacity.replica_times import ReplicaTimes, TimePart
from supervisor.capacity.steady_state import ReplicaRoom, Steady, most_rate_per_s, steady_state
from supervisor.capacity.workload import OfferedLoad
from supervisor.config.server_config import ServerConfig
from supervisor.placement.kv_room import kv_pages, rank_estimate
from supervisor.placement.placement import Placement

ADVISED_SHARE = 0.7  # of what a server carries at most: above it queues grow quickly, and a replica that restarts is missed
# Processor time of a gateway for an HTTP stream and for each of its tokens. docs/performance_gpus.md, on a host of an H200: one
# gateway answers 2,250 requests of 16 tokens a second
_GATEWAY_REQUEST_S, _GATEWAY_TOKEN_S = 0.25e-3, 11e-6
_MOSTLY = 0.5  # of the time: where prompts take so much, nothing else is the limit
_BINDS = 0.1  # places or pages are the limit where twice as many would carry so much more


class Limit(Enum):
    """What keeps a server from carrying more."""

    PAGES = "memory for keys and values"
    SLOTS = "sequences at once"
    WEIGHTS = TimePart.WEIGHTS.value
    PRODUCTS = TimePart.PRODUCTS.value
    KEYS = TimePart.KEYS.value
    KERNELS = TimePart.KERNELS.value
    STEPS = TimePart.STEPS.value
    PROMPTS = TimePart.PROMPTS.value
    GATEWAYS = "gateways"


@dataclass(frozen=True)
class KvPlan:
    """Keys and values of a replica."""

    n_pages: int
    token_bytes: int  # of one token, on the fullest rank
    n_slots: int
    fits_sequences: int  # of the load's whole length

    @property
    def n_at_once(self) -> int:
        """Sequences of this length that a replica answers at once."""
        return min(self.n_slots, self.fits_sequences)


@dataclass(frozen=True)
class CapacityPlan:
    """A server and what it carries. Rates are of the whole server, in requests a second; `steady` is of one replica, which has
    an equal part of the load. `uncertainty`: 0.15 stands for rates and times between 15 % less and 15 % more."""

    placement: Placement
    load: OfferedLoad
    kv: KvPlan
    steady: Steady
    most_rate_per_s: float
    limit: Limit
    parts: dict[TimePart, float]  # shares of a replica's time at its most
    gateways_needed: int
    needs: HostNeeds
    uncertainty: float
    is_measured: bool

    @property
    def advised_rate_per_s(self) -> float:
        """The load that leaves room for bursts and restarts."""
        return ADVISED_SHARE * self.most_rate_per_s

    @property
    def is_carried(self) -> bool:
        """True if the load is at most the advised one."""
        return self.load.rate_per_s <= self.advised_rate_per_s

    @property
    def replicas_needed(self) -> int:
        """Replicas of this kind that carry the load at the advised share."""
        each = self.advised_rate_per_s / self.placement.replicas
        return max(-int(-self.load.rate_per_s // each), 1)


@dataclass(frozen=True)
class Forecast:
    """The times of the steps of a placement, and how far they may be off."""

    times: ReplicaTimes
    uncertainty: float
    is_measured: bool = False


def plan_capacity(
    config: ServerConfig, model: ModelConfig, placement: Placement, load: OfferedLoad, forecast: Forecast
) -> CapacityPlan:
    """The plan. Raises: ConfigError where not even one sequence of this length fits."""
    kv = _kv_plan(config, model, placement, load)
    worker = on_devices(config.worker, placement)
    room = ReplicaRoom(kv.n_at_once, worker.lease_seconds)
    times, gateway_s = forecast.times, _GATEWAY_REQUEST_S + load.output_tokens * _GATEWAY_TOKEN_S
    own = replace(load, rate_per_s=load.rate_per_s / placement.replicas)
    steady = steady_state(times, own, room)
    of_replicas = placement.replicas * most_rate_per_s(times, load, room)
    # a measurement went through a gateway, on the same cores
    of_gateways = float("inf") if forecast.is_measured else config.gateways / gateway_s
    parts = _parts(times, load, kv.n_at_once)
    limit = Limit.GATEWAYS if of_gateways < of_replicas else _limit(times, load, kv, parts)
    return CapacityPlan(
        placement, load, kv, steady, min(of_replicas, of_gateways), limit, parts,
        gateways_needed=1 if forecast.is_measured else max(-int(-load.rate_per_s * gateway_s // ADVISED_SHARE), 1),
        needs=needs_of(config, placement, load, steady.n_sequences * placement.replicas),
        uncertainty=forecast.uncertainty, is_measured=forecast.is_measured,
    )  # fmt: skip


def on_devices(worker: WorkerSettings, placement: Placement) -> WorkerSettings:
    """The worker's settings on the devices of the placement."""
    return msgspec.structs.replace(worker, device=placement.device, n_slots=placement.slots_of(worker))


def best_of(plans: Sequence[CapacityPlan], asked: CapacityPlan) -> CapacityPlan:
    """The layout to propose: the one that a start would choose (`asked`) where it carries the load or no other carries clearly
    more, else the first other one that carries it with the fewest GPUs for each replica, else the one that carries most."""
    if asked.is_carried:
        return asked
    carrying = [plan for plan in plans if plan.is_carried]
    if carrying:
        return min(carrying, key=lambda plan: plan.placement.tp)
    most = max(plans, key=lambda plan: plan.most_rate_per_s, default=asked)
    return most if most.most_rate_per_s > (1 + _BINDS) * asked.most_rate_per_s else asked


def _kv_plan(config: ServerConfig, model: ModelConfig, placement: Placement, load: OfferedLoad) -> KvPlan:
    length = min(config.max_length or model.max_position, model.max_position)
    if load.whole_tokens > length:
        raise ConfigError(f"load: expected at most {length} tokens of prompt and output together, got {load.whole_tokens}")
    n_pages = kv_pages(placement, model, config.worker, config.max_length)
    fits = n_pages // -(-load.whole_tokens // PAGE_TOKENS)
    if not fits:
        got = f"got {load.whole_tokens} of prompt and output"
        raise ConfigError(f"load: expected at most {n_pages * PAGE_TOKENS} tokens, for which a replica has memory, {got}")
    token_bytes = rank_estimate(placement, model, config.worker).kv_token_bytes
    return KvPlan(n_pages, token_bytes, on_devices(config.worker, placement).slots, fits)


def _parts(times: ReplicaTimes, load: OfferedLoad, n_at_once: int) -> dict[TimePart, float]:
    """Shares of the time of a replica that is full."""
    steps = load.output_tokens / n_at_once
    spent = {part: steps * part_s for part, part_s in times.parts(n_at_once, load.mean_context_tokens).items()}
    spent[TimePart.PROMPTS] = times.prompt_s(load.prompt_tokens)
    total_s = sum(spent.values())
    return {part: part_s / total_s for part, part_s in spent.items()}


def _limit(times: ReplicaTimes, load: OfferedLoad, kv: KvPlan, parts: dict[TimePart, float]) -> Limit:
    now, twice = (most_rate_per_s(times, load, ReplicaRoom(n)) for n in (kv.n_at_once, 2 * kv.n_at_once))
    if parts[TimePart.PROMPTS] < _MOSTLY and twice > (1 + _BINDS) * now:
        return Limit.PAGES if kv.fits_sequences < kv.n_slots else Limit.SLOTS
    return Limit(max(parts, key=lambda part: parts[part]).value)
