"""What works instead of a placement that is refused; and what is known not to be deterministic before a model loads. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpu_workers.layers.shard import split_sizes
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.settings import FP8_CAPABILITY, PAGES_CAPABILITY, KvDtype
from messages.errors import ConfigError
from supervisor.placement.hardware import Host
from supervisor.placement.placement import Placement, PlacementRequest
from supervisor.placement.plan import plan_placement
from supervisor.placement.quantities import dotted
from supervisor.placement.refusal import PlacementRefused

_LEFT_TO_PLAN: dict[str, Any] = {
    "gpus": None,
    "tp": 0,
    "pp": 1,
    "replicas": 0,
}  # settings that say how many, and their defaults


def plan_or_offer(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> Placement:
    """`plan_placement`. Of the values that its refusal offers, the error keeps those that would be accepted; if there is none,
    it says all flags of a plan that works.

    Raises: ConfigError naming the key, what would work and what came.
    """
    try:
        return plan_placement(host, model, asked)
    except PlacementRefused as refused:
        offers = [offer for offer in refused.offers if _plan(host, model, replace(asked, **{refused.key: offer}))]
        if offers:
            raise refused.offering(offers) from None
        others = filter(None, (_as_asked(host, model, one) for one in _nearest(host, model, asked)))
        found = next(others, None)
        if found is None:  # the host itself does not suffice: the refusal with nothing asked says what it lacks
            return plan_placement(host, model, replace(asked, **_LEFT_TO_PLAN))
        keys = [key for key in _LEFT_TO_PLAN if key != "pp" or found.pp > 1]
        flags = " ".join(f"--{key} {getattr(found, key)}" for key in keys)
        raise refused.with_flags(flags) from None


def _plan(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> Placement | None:
    """The plan; None if the request is refused."""
    try:
        return plan_placement(host, model, asked)
    except ConfigError:
        return None


def _as_asked(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> PlacementRequest | None:
    """The request with every number of its plan filled in; None if the host refuses it, with or without these numbers."""
    plan = _plan(host, model, asked)
    if plan is None:
        return None
    full = replace(asked, gpus=len(plan.gpus), tp=plan.tp, pp=plan.pp, replicas=plan.replicas)
    return full if _plan(host, model, full) else None


def _nearest(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> Iterator[PlacementRequest]:
    """Other requests: with one of the numbers changed, the nearest first; then what the refusals themselves lead to; then with
    two and three of the numbers left to the plan."""
    n_gpus = len(host.gpus)
    keys = [key for key, free in _LEFT_TO_PLAN.items() if getattr(asked, key) != free]
    for key in reversed(keys):
        wanted = getattr(asked, key)
        numbers = split_sizes(model) if model is not None and key == "tp" else range(1, n_gpus + 1)
        yield from (
            replace(asked, **{key: number}) for number in sorted(numbers, key=lambda one, wanted=wanted: abs(one - wanted))
        )
    yield _followed(host, model, asked)
    for n_free in range(1, len(keys) + 1):
        yield replace(asked, **{key: _LEFT_TO_PLAN[key] for key in keys[-n_free:]})
        yield replace(asked, **{key: _LEFT_TO_PLAN[key] for key in keys[:n_free]})


def _followed(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> PlacementRequest:
    """The request after each refused number was changed to the nearest that its refusal offers."""
    for _ in _LEFT_TO_PLAN:
        try:
            plan_placement(host, model, asked)
        except PlacementRefused as refused:
            nearest = min(refused.offers, key=lambda offer, got=refused.got: abs(offer - got))
            asked = replace(asked, **{refused.key: nearest})
        except ConfigError:
            break
        else:
            break
    return asked


def check_deterministic(placement: Placement, attention: str) -> None:
    """Check a placement whose tokens are to depend on the request alone. `attention`: as in `WorkerSettings`.

    Models without kernels for it are refused later, by the ranks. Raises: ConfigError naming the key.
    """
    if not placement.deterministic:
        return
    if attention == "torch":
        raise ConfigError('worker.attention: expected "auto" with worker.deterministic, got "torch"')
    if not placement.gpus and placement.dtype == "float16":
        raise ConfigError("worker.dtype: expected float32 or bfloat16 with worker.deterministic on CPU cores, got float16")
    kinds = dict.fromkeys(gpu.name for gpu in placement.gpus)
    if len(kinds) > 1:
        raise ConfigError(f"gpus: expected GPUs of one kind with worker.deterministic, got {' and '.join(kinds)}")


def check_kv_dtype(placement: Placement, kv_dtype: KvDtype) -> None:
    """Check that the devices have kernels for keys and values of this dtype. `kv_dtype`: as in `WorkerSettings`.

    Raises: ConfigError naming the key.
    """
    if kv_dtype == "fp8" and not placement.gpus:
        raise ConfigError('worker.kv_dtype: expected "auto", "int8" or "int4" on CPU cores, got "fp8"; it works on GPUs')
    least = PAGES_CAPABILITY[kv_dtype]
    old = next((gpu for gpu in placement.gpus if gpu.capability < least), None)
    if old is not None:
        got = f"got {old.name} with {dotted(old.capability)}; --kv-dtype auto works on it"
        raise ConfigError(f'gpus: expected compute capability {dotted(least)} or more with "{kv_dtype}" pages, {got}')


def check_quantization(placement: Placement) -> None:
    """Check that the devices have kernels for quantised weights. Processors without any are refused later, by the ranks.

    Raises: ConfigError naming the key.
    """
    if placement.quantization in ("none", "exact"):  # exact is chosen only where it works
        return
    if placement.gpus:
        _check_gpu_quantization(placement)
    elif placement.quantization == "fp8":
        raise ConfigError('worker.quantization: expected "none", "int8" or "int4" on CPU cores, got "fp8"; it works on GPUs')
    elif placement.dtype == "float16":
        got = f"with worker.quantization {placement.quantization}, got float16"
        raise ConfigError(f"worker.dtype: expected float32 or bfloat16 {got}")


def _check_gpu_quantization(placement: Placement) -> None:
    if placement.quantization != "fp8":
        got = f'got "{placement.quantization}"; it works on CPU cores (gpus = 0)'
        raise ConfigError(f'worker.quantization: expected "none" or "fp8" on GPUs, {got}')
    old = next((gpu for gpu in placement.gpus if gpu.capability < FP8_CAPABILITY), None)
    if old is not None:
        got = f"got {old.name} with {dotted(old.capability)}"
        raise ConfigError(f'gpus: expected compute capability {dotted(FP8_CAPABILITY)} or more with "fp8" weights, {got}')
    if placement.dtype != "bfloat16":
        raise ConfigError(f'worker.dtype: expected bfloat16 with worker.quantization "fp8", got {placement.dtype}')
    if placement.deterministic:
        raise ConfigError('worker.quantization: expected "none" with worker.deterministic on GPUs, got "fp8"')
