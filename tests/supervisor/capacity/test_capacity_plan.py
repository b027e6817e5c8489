"""Plans of servers: what fits, what is carried, what limits it and what is advised."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import GIB
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from messages.steps import PAGE_TOKENS
from supervisor.capacity.advice import advice
from supervisor.capacity.capacity_plan import CapacityPlan, Limit, best_of, plan_capacity
from supervisor.capacity.forecast import forecast
from supervisor.capacity.gpu_kinds import KINDS, find_kind, kind_of_device
from supervisor.capacity.workload import OfferedLoad
from supervisor.config.server_config import ServerConfig
from supervisor.placement.hardware import Host
from supervisor.placement.host import placed
from supervisor.placement.kv_room import kv_pages
from tests.support.supervisor.known_models import LLAMA_8B, LLAMA_70B, SMOLLM2

CHATS = OfferedLoad(5, 512, 128)


def planned(model: ModelConfig, load: OfferedLoad, config: ServerConfig, kind: str = "H200", n_gpus: int = 1) -> CapacityPlan:
    """The plan on a host with so many GPUs; 0: CPU cores."""
    host = Host(tuple(KINDS[kind].gpu(index) for index in range(n_gpus)), 64 * GIB)
    placement = placed(host, model, config)
    return plan_capacity(config, model, placement, load, forecast(config, model, placement))


def config(**worker: object) -> ServerConfig:
    """A configuration with these settings of workers."""
    return ServerConfig(worker=WorkerSettings(**worker))  # type: ignore[arg-type]


def test_pages_and_places_are_those_of_the_start() -> None:
    plan = planned(LLAMA_8B, CHATS, config())
    assert plan.placement.has_standby
    assert plan.kv.n_pages == kv_pages(plan.placement, LLAMA_8B, WorkerSettings(), 0)
    assert plan.kv.token_bytes == 131_072
    assert 45_000 < plan.kv.n_pages < 60_000, "an H200 has 50,000 pages beside two gangs of 8B"
    assert plan.kv.fits_sequences == plan.kv.n_pages // (640 // PAGE_TOKENS)
    assert plan.kv.n_at_once == plan.placement.n_slots == 384, "as many as urgent steps allow"


def test_a_standby_takes_room_and_smaller_numbers_give_some() -> None:
    alone = planned(LLAMA_8B, CHATS, ServerConfig(standby=False))
    small = planned(LLAMA_8B, CHATS, replace_worker(ServerConfig(standby=False), kv_dtype="fp8"))
    assert planned(LLAMA_8B, CHATS, config()).kv.n_pages < alone.kv.n_pages < small.kv.n_pages


def replace_worker(base: ServerConfig, **worker: object) -> ServerConfig:
    """The configuration with other settings of workers."""
    return msgspec.structs.replace(base, worker=WorkerSettings(**worker))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "load", "settings", "kind", "limit", "first_advice"),
    [
        (LLAMA_8B, OfferedLoad(100, 4000, 10), {}, "H200", Limit.PROMPTS, "prompts with equal beginnings"),
        (LLAMA_8B, OfferedLoad(100, 200, 500), {"n_slots": 32}, "H200", Limit.SLOTS, "--max-sequences 64"),
        (LLAMA_8B, OfferedLoad(100, 5, 900), {"n_slots": 1}, "H200", Limit.SLOTS, "--max-sequences 2"),
        (LLAMA_8B, OfferedLoad(100, 500, 1500), {"max_step_tokens": 2048}, "A10", Limit.PAGES, "--kv-dtype int8"),
        (LLAMA_8B, OfferedLoad(900, 8000, 8000), {}, "H200", Limit.KEYS, "--kv-dtype fp8"),
        (SMOLLM2, OfferedLoad(4000, 16, 16), {}, "H200", Limit.GATEWAYS, "--gateways"),
    ],
)  # fmt: skip
def test_what_limits_a_server_is_named_with_what_to_change(
    model: ModelConfig, load: OfferedLoad, settings: dict[str, object], kind: str, limit: Limit, first_advice: str
) -> None:
    plan = planned(model, load, ServerConfig(max_length=0 if kind == "H200" else 4096, worker=WorkerSettings(**settings)), kind)  # type: ignore[arg-type]
    assert not plan.is_carried
    assert plan.limit is limit
    assert advice(plan)[0].startswith(first_advice)


def test_a_load_that_is_carried_needs_no_change() -> None:
    plan = planned(LLAMA_8B, CHATS, config())
    assert plan.is_carried
    assert advice(plan) == []


def test_the_devices_that_are_advised_carry_the_load() -> None:
    load = OfferedLoad(100, 1000, 250)
    plan = planned(LLAMA_8B, load, config())
    assert not plan.is_carried
    assert planned(LLAMA_8B, load, ServerConfig(gateways=plan.gateways_needed), n_gpus=plan.replicas_needed).is_carried


def test_what_is_advised_can_be_done() -> None:
    """An A10 computes in no 8-bit floats."""
    plan = planned(LLAMA_8B, OfferedLoad(100, 4000, 10), ServerConfig(max_length=8192), "A10")
    assert not any("fp8" in text for text in advice(plan))
    on_cores = planned(SMOLLM2, OfferedLoad(100, 4000, 10), ServerConfig(), n_gpus=0)
    assert "--quantization int8: smaller weights" in advice(on_cores)


@given(st.floats(0.1, 50), st.integers(1, 4000), st.integers(1, 2000), st.integers(1, 8))
def test_more_gpus_carry_more(rate_per_s: float, prompt_tokens: int, output_tokens: int, n_gpus: int) -> None:
    load = OfferedLoad(rate_per_s, prompt_tokens, output_tokens)
    few, many = (planned(LLAMA_8B, load, ServerConfig(gateways=64), n_gpus=n) for n in (n_gpus, n_gpus + 1))
    assert many.most_rate_per_s >= few.most_rate_per_s
    assert sum(few.parts.values()) == pytest.approx(1)
    assert few.steady.n_sequences <= few.kv.n_at_once


def test_another_layout_is_proposed_where_only_that_carries_the_load() -> None:
    """70B leaves two H100s little room for long sequences; four carry more together than two pairs."""
    load = OfferedLoad(0.1, 5000, 1000)
    of_each = [ServerConfig(tp=tp, max_length=8192) for tp in (2, 4)]
    chosen, other = (planned(LLAMA_70B, load, one, "H100", 4) for one in of_each)
    assert not chosen.is_carried
    assert other.is_carried
    assert best_of([other], chosen) is other
    assert best_of([chosen], other) is other


def test_a_sequence_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="load: expected at most 8192 tokens of prompt and output together, got 9000"):
        planned(SMOLLM2, OfferedLoad(1, 8000, 1000), ServerConfig())
    with pytest.raises(ConfigError, match="gpus: expected at least"):
        planned(LLAMA_70B, CHATS, ServerConfig())


def test_needs_grow_with_what_is_asked_for() -> None:
    plain = planned(LLAMA_8B, CHATS, config())
    tiers = planned(LLAMA_8B, CHATS, config(host_cache_bytes=8 * GIB, disk_cache_bytes=100 * GIB))
    assert tiers.needs.memory_bytes == plain.needs.memory_bytes + 8 * GIB
    assert tiers.needs.disk_bytes == plain.needs.disk_bytes + 100 * GIB
    assert plain.needs.journal_bytes < plain.needs.disk_bytes
    assert plain.needs.model_bytes == pytest.approx(16.06e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"), ("NVIDIA A100-PCIE-40GB", "A100-40GB"), ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"), ("NVIDIA A10G", "A10G"), ("NVIDIA A10", "A10"), ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100"), ("NVIDIA GeForce RTX 4090", "RTX-4090"), ("NVIDIA GH200 480GB", "GH200"),
    ],
)  # fmt: skip
def test_devices_are_known_by_the_names_of_their_driver(name: str, kind: str) -> None:
    assert kind_of_device(name) is KINDS[kind]


def test_other_devices_are_not_guessed() -> None:
    assert kind_of_device("NVIDIA L400") is None
    assert kind_of_device("Quadro RTX 8000") is None
    with pytest.raises(ConfigError, match=r"gpu: expected one of B200, H200, .*, got 'H20'"):
        find_kind("H20")
    assert find_kind("nvidia h200") is find_kind("h200") is KINDS["H200"]
    assert find_kind("a100 80gb") is KINDS["A100-80GB"]


def test_a_kind_has_the_memory_that_is_given() -> None:
    host = Host((replace(KINDS["H200"].gpu(0, 80 * GIB)),), 64 * GIB)
    assert placed(host, LLAMA_8B, ServerConfig()).memory_bytes == 80 * GIB
