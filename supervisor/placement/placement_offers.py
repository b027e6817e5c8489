"""What works instead of a placement that is refused; and what is known not to be deterministic before a model loads. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpu_workers.model_store.model_config import ModelConfig
from messages.errors import ConfigError
from supervisor.placement.hardware import Host
from supervisor.placement.placement import Placement, PlacementRefused, PlacementRequest, plan_placement

_LEFT_TO_PLAN: dict[str, Any] = {"gpus": None, "tp": 0, "replicas": 0}  # settings that say how many, and their defaults


def plan_or_offer(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> Placement:
    """`plan_placement`. If the value that its refusal offers would be refused too, the error names other settings that work.

    Raises: ConfigError naming the key, what would work and what came.
    """
    try:
        return plan_placement(host, model, asked)
    except PlacementRefused as refused:
        if _works(host, model, replace(asked, **{refused.key: refused.offer})):
            raise
        offer = next((one for one in _nearest(host, asked) if _works(host, model, one)), None)
        if offer is None:  # the host itself does not suffice: the refusal with nothing asked says what it lacks
            return plan_placement(host, model, replace(asked, **_LEFT_TO_PLAN))
        raise ConfigError(f"{refused}; it works {_difference(asked, offer)}") from None


def _works(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> bool:
    try:
        plan_placement(host, model, asked)
    except ConfigError:
        return False
    return True


def _nearest(host: Host, asked: PlacementRequest) -> Iterator[PlacementRequest]:
    """Other requests: with one of the numbers changed, the nearest first; then with two and three of them left to the plan."""
    keys = [key for key, free in _LEFT_TO_PLAN.items() if getattr(asked, key) != free]
    for key in reversed(keys):
        wanted = getattr(asked, key)
        numbers = sorted(range(1, max(wanted, len(host.gpus)) + 1), key=lambda one, wanted=wanted: abs(one - wanted))
        yield from (replace(asked, **{key: number}) for number in numbers if number != wanted)
    for n_free in range(1, len(keys) + 1):
        yield replace(asked, **{key: _LEFT_TO_PLAN[key] for key in keys[-n_free:]})
        yield replace(asked, **{key: _LEFT_TO_PLAN[key] for key in keys[:n_free]})


def _difference(asked: PlacementRequest, offer: PlacementRequest) -> str:
    """What is changed, as flags: "with --replicas 1", "without --gpus and --tp"."""
    changed = {key: getattr(offer, key) for key in _LEFT_TO_PLAN if getattr(offer, key) != getattr(asked, key)}
    given = [f"--{key} {value}" for key, value in changed.items() if value != _LEFT_TO_PLAN[key]]
    return f"with {given[0]}" if given else f"without {' and '.join(f'--{key}' for key in changed)}"


def check_deterministic(placement: Placement, attention: str) -> None:
    """Check a placement with `deterministic`. attention: `WorkerSettings.attention`. A rank refuses models without kernels.

    Raises: ConfigError naming the key."""
    if not placement.deterministic:
        return
    if attention == "torch":
        raise ConfigError('worker.attention: expected "auto" with worker.deterministic, got "torch"')
    if not placement.gpus and placement.dtype == "float16":
        raise ConfigError("worker.dtype: expected float32 or bfloat16 with worker.deterministic on CPU cores, got float16")
    kinds = dict.fromkeys(gpu.name for gpu in placement.gpus)
    if len(kinds) > 1:
        raise ConfigError(f"gpus: expected GPUs of one kind with worker.deterministic, got {' and '.join(kinds)}")
