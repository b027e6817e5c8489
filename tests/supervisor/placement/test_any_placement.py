"""Placements of any model on any host: they fit, they use what they can, and what a refusal offers is accepted."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from gpu_workers.layers.shard import can_split, is_even_split
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import estimate_cuda_rank
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from supervisor.placement.hardware import Host
from supervisor.placement.placement import PlacementRequest
from supervisor.placement.plan import plan_placement
from tests.support.supervisor.any_host import HOSTS, MODELS

REQUESTS = st.builds(
    PlacementRequest,
    gpus=st.none() | st.integers(1, 16),
    tp=st.just(0) | st.integers(1, 16),
    replicas=st.just(0) | st.integers(1, 8),
    max_length=st.just(0) | st.integers(1, 200_000),
)


@given(HOSTS, MODELS, REQUESTS)
def test_a_plan_fits_divides_and_keeps_to_what_was_asked(there: Host, model: ModelConfig, asked: PlacementRequest) -> None:
    try:
        placement = plan_placement(there, model, asked)
    except ConfigError:
        return
    offered = len(there.gpus) if asked.gpus is None else asked.gpus
    assert placement.ranks == len(placement.gpus) == offered - placement.n_unused
    assert can_split(model, placement.tp)
    assert placement.tp == (asked.tp or placement.tp)
    assert placement.replicas == (asked.replicas or offered // placement.tp)
    settings = WorkerSettings(device="cuda")
    estimate = estimate_cuda_rank(model, placement.tp, placement.dtype, settings.step_tokens, settings.slots)
    wanted = min(asked.max_length or model.max_position, model.max_position)
    tokens = placement.room_tokens or wanted
    used_bytes = estimate.weight_bytes + estimate.working_bytes + tokens * estimate.kv_token_bytes
    assert used_bytes <= 0.9 * there.gpus[0].memory_bytes
    assert tokens == wanted or (not asked.max_length and tokens >= min(2048, wanted))


@given(HOSTS, MODELS)
def test_left_to_itself_it_takes_the_least_size_that_holds_the_model_and_as_many_gpus_as_it_can(
    there: Host, model: ModelConfig
) -> None:
    try:
        placement = plan_placement(there, model, PlacementRequest())
    except ConfigError:
        return
    assert placement.n_unused < placement.tp
    assume(not placement.room_tokens)
    for tp in range(1, placement.tp):
        settings = WorkerSettings(device="cuda")
        if can_split(model, tp) and (is_even_split(model, tp) or not is_even_split(model, placement.tp)):
            estimate = estimate_cuda_rank(model, tp, placement.dtype, settings.step_tokens, settings.slots)
            assert estimate.room_tokens(int(0.9 * there.gpus[0].memory_bytes)) < model.max_position


@given(HOSTS, MODELS, REQUESTS)
def test_what_a_refusal_offers_is_accepted(there: Host, model: ModelConfig, asked: PlacementRequest) -> None:
    """`tp: expected 1, 2 or 3` means that 1, 2 and 3 are not refused for tp again in the same words."""
    try:
        plan_placement(there, model, asked)
    except ConfigError as error:
        first = re.match(r"^(tp|gpus|replicas): expected (?:at most )?([\d, or]+)", str(error))
        if first is None or "at least" in str(error):
            return
        offered = int(re.findall(r"\d+", first[2])[-1])
        changed = PlacementRequest(**{**vars(asked), first[1]: offered})
        try:
            plan_placement(there, model, changed)
        except ConfigError as second:
            assert str(second).partition(", got")[0] != str(error).partition(", got")[0]  # noqa: PT017
