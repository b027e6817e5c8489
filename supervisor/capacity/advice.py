"""What to change where a server does not carry a load, by what limits it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_workers.settings import FP8_CAPABILITY, PAGES_CAPABILITY, KvDtype
from supervisor.capacity.capacity_plan import CapacityPlan, Limit
from supervisor.placement.placement import Placement

_KEYS_BY_PREFERENCE: tuple[KvDtype, ...] = ("fp8", "int8")


def advice(plan: CapacityPlan) -> list[str]:
    """What to change, the most useful first; empty if the load is carried."""
    return [] if plan.is_carried else [*_for_limit(plan), *_more_devices(plan)]


def _for_limit(plan: CapacityPlan) -> Iterator[str]:
    limit, placement = plan.limit, plan.placement
    keys, weights = _smaller_keys(placement), _smaller_weights(placement)
    if limit is Limit.GATEWAYS:
        yield f"--gateways {plan.gateways_needed}: more processes that accept requests"
    elif limit is Limit.SLOTS:
        yield f"--max-sequences {min(2 * plan.kv.n_slots, plan.kv.fits_sequences)}: more sequences share a read of the weights"
    elif limit is Limit.KERNELS:
        yield "more replicas instead of a greater --tp: small kernels and sums take most of a step"
    if limit is Limit.PROMPTS:
        yield "prompts with equal beginnings: they are computed once (docs/caching.md), which this plan does not count"
    if keys and limit in (Limit.PAGES, Limit.KEYS):
        yield f"{keys}: smaller keys and values"
    if weights and limit not in (Limit.GATEWAYS, Limit.SLOTS, Limit.KERNELS, Limit.KEYS):
        yield f"{weights}: smaller weights"
    if limit is Limit.PAGES and placement.has_standby:
        yield "--no-standby: the memory of the second gang goes to keys and values, and a death takes longer to mend"


def _smaller_weights(placement: Placement) -> str:
    """The flag for a smaller form of the weights; "" if they have one, or these devices have none."""
    if placement.quantization != "none":
        return ""
    if not placement.gpus:
        return "--quantization int8" if placement.dtype != "float16" else ""
    has_fp8 = placement.dtype == "bfloat16" and not placement.deterministic
    return "--quantization fp8" if has_fp8 and all(gpu.capability >= FP8_CAPABILITY for gpu in placement.gpus) else ""


def _smaller_keys(placement: Placement) -> str:
    """The flag for a smaller form of keys and values, likewise."""
    if placement.kv_dtype != "auto":
        return ""
    if not placement.gpus:
        return "--kv-dtype int8"
    found = (kind for kind in _KEYS_BY_PREFERENCE if all(gpu.capability >= PAGES_CAPABILITY[kind] for gpu in placement.gpus))
    return next((f"--kv-dtype {kind}" for kind in found), "")


def _more_devices(plan: CapacityPlan) -> Iterator[str]:
    if plan.limit is Limit.GATEWAYS:
        return
    needed, there = plan.replicas_needed, plan.placement.replicas
    if needed > there and plan.placement.gpus:
        yield f"{needed * plan.placement.tp} GPUs ({needed} replicas x tp {plan.placement.tp}) carry it as it is"
    elif needed > there:
        yield f"{needed} such machines carry it as it is"
