"""Placement of a model on a host's devices: what is chosen, what is refused, and how it is said."""

from __future__ import annotations

import re

import msgspec
import pytest

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import GIB
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from supervisor.placement.hardware import Gpu, Host
from supervisor.placement.placement import Placement, PlacementRequest
from supervisor.placement.plan import plan_placement
from tests.support.supervisor.known_models import LLAMA_8B, LLAMA_70B, SMOLLM2

H200 = ("NVIDIA H200", 139.8, (9, 0))
A10 = ("NVIDIA A10", 22.5, (8, 6))
T4 = ("Tesla T4", 14.6, (7, 5))
V100 = ("Tesla V100", 31.7, (7, 0))
APART = WorkerSettings(shared_weights=False)
K80 = ("Tesla K80", 11.2, (3, 7))
ROOM_FOR_TWO = "(29.9 GiB of weights each, 64.0 GiB of memory)"


def host(n: int, kind: tuple[str, float, tuple[int, int]] = H200, memory_gib: float = 64) -> Host:
    """A machine with n devices of one kind."""
    name, gib, capability = kind
    return Host(tuple(Gpu(str(i), name, int(gib * GIB), capability) for i in range(n)), int(memory_gib * GIB))


def layout(placement: Placement) -> tuple[int, int, int]:
    """(replicas, tp, GPUs left over)."""
    return placement.replicas, placement.tp, placement.n_unused


@pytest.mark.parametrize(
    ("there", "model", "asked", "expected"),
    [
        (host(4), SMOLLM2, PlacementRequest(gpus=4), (4, 1, 0)),
        (host(8), SMOLLM2, PlacementRequest(), (8, 1, 0)),
        (host(8), SMOLLM2, PlacementRequest(gpus=3), (3, 1, 0)),
        (host(4), SMOLLM2, PlacementRequest(tp=3), (1, 3, 1)),
        (host(4), SMOLLM2, PlacementRequest(tp=2), (2, 2, 0)),  # heads are split unevenly when asked for
        (host(4), SMOLLM2, PlacementRequest(replicas=2), (2, 1, 2)),
        (host(4), LLAMA_8B, PlacementRequest(gpus=4, replicas=2), (2, 2, 0)),  # so many GPUs and replicas: all are used
        (host(4), LLAMA_8B, PlacementRequest(gpus=4, replicas=1), (1, 4, 0)),
        (host(4), LLAMA_8B, PlacementRequest(gpus=4, tp=2, replicas=1), (1, 2, 2)),
        (host(4), LLAMA_8B, PlacementRequest(), (4, 1, 0)),
        (host(4, A10), LLAMA_8B, PlacementRequest(), (2, 2, 0)),  # one A10 has no room for a sequence of 131,072 tokens
        (host(4, A10), LLAMA_8B, PlacementRequest(max_length=8192), (4, 1, 0)),
        (host(8), LLAMA_70B, PlacementRequest(), (4, 2, 0)),
        (host(3), LLAMA_70B, PlacementRequest(), (1, 2, 1)),
        (host(5, ("some GPU", 48.0, (8, 9))), LLAMA_70B, PlacementRequest(), (1, 5, 0)),  # uneven, but four would not hold it
        (host(2), None, PlacementRequest(gpus=2), (2, 1, 0)),
    ],
)
def test_the_layout(there: Host, model: ModelConfig | None, asked: PlacementRequest, expected: tuple[int, int, int]) -> None:
    placement = plan_placement(there, model, asked)
    assert layout(placement) == expected
    assert placement.device == "cuda"
    assert [gpu.device_id for gpu in placement.gpus] == [str(i) for i in range(placement.ranks)]


@pytest.mark.parametrize(
    ("there", "model", "asked", "said"),
    [
        (host(0), SMOLLM2, PlacementRequest(gpus=4), "gpus: expected 0 (CPU cores; no GPU is visible here), got 4"),
        (host(2), SMOLLM2, PlacementRequest(gpus=4), "gpus: expected at most 2 (2 x NVIDIA H200), got 4"),
        (host(4), SMOLLM2, PlacementRequest(tp=4), "tp: expected 1, 2 or 3 (the model has 3 KV heads and 9 heads), got 4"),
        (host(0), SMOLLM2, PlacementRequest(tp=4), "tp: expected 1, 2, 3 or 9 (the model has 3 KV heads and 9 heads), got 4"),
        (host(1), SMOLLM2, PlacementRequest(tp=4), "tp: expected 1 (the model has 3 KV heads and 9 heads), got 4"),
        (host(2), LLAMA_8B, PlacementRequest(tp=4), "tp: expected at most 2 (2 GPUs), got 4"),
        (host(4), LLAMA_8B, PlacementRequest(tp=2, replicas=3), "tp: expected at most 1 (4 GPUs for 3 replicas), got 2"),
        (host(4), LLAMA_8B, PlacementRequest(replicas=5), "replicas: expected at most 4 (the number of GPUs), got 5"),
        (host(2), None, PlacementRequest(gpus=2, tp=3), "tp: expected at most 2 (2 GPUs), got 3"),
        (
            host(2, A10),
            LLAMA_70B,
            PlacementRequest(),
            "gpus: expected at least 8 of 22.5 GiB each for this model, got 2 (65.7 GiB of weights a GPU in bfloat16)",
        ),
        (
            host(8, A10),
            LLAMA_70B,
            PlacementRequest(tp=4),
            "tp: expected at least 8 of 22.5 GiB each for this model, got 4 (32.9 GiB of weights a GPU in bfloat16)",
        ),
        (
            host(1, T4),
            LLAMA_8B,
            PlacementRequest(),
            "gpus: expected at least 2 of 14.6 GiB each for this model, got 1 (15.0 GiB of weights a GPU in float16)",
        ),
        (host(2, K80), SMOLLM2, PlacementRequest(), None),
        (
            host(1, T4),
            SMOLLM2,
            PlacementRequest(worker=WorkerSettings(dtype="bfloat16")),
            "worker.dtype: expected float16 or float32 on Tesla T4 (compute capability 7.5), got bfloat16",
        ),
        (
            host(0, memory_gib=16),
            LLAMA_8B,
            PlacementRequest(),
            "model: expected weights that fit into the memory of this host, 16.0 GiB, got 29.9 GiB"
            " (1 replica, float32; --dtype bfloat16 halves them)",
        ),
        (host(0), LLAMA_8B, PlacementRequest(replicas=3), f"replicas: expected at most 2 {ROOM_FOR_TWO}, got 3"),
        (
            host(0),
            SMOLLM2,
            PlacementRequest(worker=WorkerSettings(attention="triton")),
            'worker.attention: expected "auto" or "torch" without GPUs, got "triton"',
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_can(
    there: Host, model: ModelConfig, asked: PlacementRequest, said: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_placement(there, model, asked)
    assert str(caught.value) == said or (said is None and "compute capability 7.0 or more, got Tesla K80" in str(caught.value))


def test_a_length_that_has_no_room_is_refused_with_the_longest_that_has() -> None:
    with pytest.raises(ConfigError, match=r"^max_length: expected at most \d+ tokens .*, got 131072$") as caught:
        plan_placement(host(1, A10), LLAMA_8B, PlacementRequest(max_length=131_072))
    longest = re.search(r"at most (\d+)", str(caught.value))
    assert longest is not None
    assert layout(plan_placement(host(1, A10), LLAMA_8B, PlacementRequest(max_length=int(longest[1])))) == (1, 1, 0)


def test_a_model_whose_context_does_not_fit_is_served_with_less_and_says_so() -> None:
    placement = plan_placement(host(1, A10), LLAMA_8B, PlacementRequest())
    assert 2048 < placement.room_tokens < 131_072
    assert f"memory for sequences of {placement.room_tokens:,} tokens (the model was made for 131,072)" in placement.text()


@pytest.mark.parametrize(("model", "kv_gib"), [(SMOLLM2, 22), (LLAMA_8B, 20)])
def test_memory_for_keys_and_values_must_fit_beside_the_weights(model: ModelConfig, kv_gib: int) -> None:
    asked = PlacementRequest(worker=WorkerSettings(kv_memory_bytes=kv_gib * GIB), max_length=4096)
    with pytest.raises(ConfigError, match=rf"^worker\.kv_memory_bytes: expected at most \d+ .*, got {kv_gib * GIB}$"):
        plan_placement(host(1, A10), model, asked)


@pytest.mark.parametrize(("there", "page_bytes"), [(host(0), 737_280), (host(2), 245_760)])
def test_memory_for_keys_and_values_must_hold_a_short_sequence(there: Host, page_bytes: int) -> None:
    asked = PlacementRequest(worker=WorkerSettings(kv_memory_bytes=100_000))
    expected = f"worker.kv_memory_bytes: expected room for 4 pages of {page_bytes} bytes, got 100000 bytes"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        plan_placement(there, SMOLLM2, asked)


@pytest.mark.parametrize(
    ("placement", "text", "summary"),
    [
        (
            plan_placement(host(4), SMOLLM2, PlacementRequest()),
            "4 GPUs: 4 replicas x tp 1, bfloat16, weights take 0.3 of 140 GiB on each GPU, 1,024 sequences at once,"
            " a standby for each replica",
            "4 replicas x tp 1 on NVIDIA H200, bfloat16",
        ),
        (
            plan_placement(host(4, T4), SMOLLM2, PlacementRequest(tp=3)),
            "3 GPUs: 1 replica x tp 3, float16, weights take 0.1 of 14.6 GiB on each GPU, a standby for each replica,"
            " 1 GPU left over",
            "1 replica x tp 3 on Tesla T4, float16",
        ),
        (
            plan_placement(host(0), SMOLLM2, PlacementRequest()),
            "CPU cores: 1 replica x tp 1, float32, weights take 0.5 of 64.0 GiB, a standby for each replica",
            "1 replica x tp 1 on CPU cores, float32",
        ),
        (
            plan_placement(host(0), SMOLLM2, PlacementRequest(worker=WorkerSettings(deterministic=True))),
            "CPU cores: 1 replica x tp 1, float32, deterministic, weights take 0.5 of 64.0 GiB, a standby for each replica",
            "1 replica x tp 1 on CPU cores, float32, deterministic",
        ),
        (
            plan_placement(host(0), SMOLLM2, PlacementRequest(worker=WorkerSettings(quantization="int8", kv_dtype="int8"))),
            "CPU cores: 1 replica x tp 1, float32, int8 weights, int8 keys and values, weights take 0.2 of 64.0 GiB,"
            " a standby for each replica",
            "1 replica x tp 1 on CPU cores, float32, int8 weights, int8 keys and values",
        ),
        (plan_placement(host(4), None, PlacementRequest()), "CPU cores: 1 replica x tp 1", "1 replica x tp 1 on CPU cores"),
    ],
)
def test_the_plan_is_one_line(placement: Placement, text: str, summary: str) -> None:
    assert placement.text() == text
    assert placement.summary() == summary


@pytest.mark.parametrize(
    ("there", "model", "asked", "expected"),
    [
        (host(1), LLAMA_8B, PlacementRequest(), True),
        (host(2), LLAMA_8B, PlacementRequest(standby=False), False),
        (host(1, A10), LLAMA_8B, PlacementRequest(), False),  # no second copy of the weights fits
        (host(1, A10), SMOLLM2, PlacementRequest(), True),
        (host(2), LLAMA_70B, PlacementRequest(), True),
        (host(2), LLAMA_70B, PlacementRequest(worker=APART), False),
        (host(4), LLAMA_70B, PlacementRequest(tp=4), True),
        (host(1), LLAMA_8B, PlacementRequest(worker=WorkerSettings(kv_memory_bytes=80 * GIB)), True),
        (host(1), LLAMA_8B, PlacementRequest(worker=WorkerSettings(kv_memory_bytes=115 * GIB), max_length=4096), True),
        (
            host(1),
            LLAMA_8B,
            PlacementRequest(worker=msgspec.structs.replace(APART, kv_memory_bytes=115 * GIB), max_length=4096),
            False,
        ),
        (host(1), LLAMA_8B, PlacementRequest(worker=WorkerSettings(kv_memory_bytes=120 * GIB), max_length=4096), False),
        (host(1), None, PlacementRequest(gpus=1), False),
        (host(0), None, PlacementRequest(), False),
        (host(0), SMOLLM2, PlacementRequest(), True),
        (host(0), SMOLLM2, PlacementRequest(standby=False), False),
        (host(0, memory_gib=8), SMOLLM2, PlacementRequest(), True),
        (host(0, memory_gib=6), SMOLLM2, PlacementRequest(), False),  # two gangs would take more than half of the memory
        (host(0, memory_gib=6), SMOLLM2, PlacementRequest(standby=True), True),
        (host(0, memory_gib=16), SMOLLM2, PlacementRequest(replicas=4), False),
        (host(0, memory_gib=16), SMOLLM2, PlacementRequest(worker=WorkerSettings(kv_memory_bytes=6 * GIB)), False),
        (host(0, memory_gib=16), SMOLLM2, PlacementRequest(worker=WorkerSettings(host_cache_bytes=6 * GIB)), False),
        (host(0), LLAMA_8B, PlacementRequest(worker=WorkerSettings(dtype="bfloat16")), True),
        (host(0), LLAMA_8B, PlacementRequest(worker=WorkerSettings(dtype="bfloat16", shared_weights=False)), False),
    ],
)
def test_a_standby_is_there_where_memory_allows(
    there: Host, model: ModelConfig | None, asked: PlacementRequest, expected: bool
) -> None:
    assert plan_placement(there, model, asked).has_standby is expected


def test_weights_that_two_gangs_share_count_once() -> None:
    assert plan_placement(host(1, V100), LLAMA_8B, PlacementRequest(standby=True)).has_standby
    with pytest.raises(ConfigError, match=r"^standby: expected room"):
        plan_placement(host(1, V100), LLAMA_8B, PlacementRequest(standby=True, worker=APART))


def test_a_standby_that_does_not_fit_is_refused_when_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"^standby: expected room for two gangs of \d+\.\d GiB each .*--no-standby"):
        plan_placement(host(1, A10), LLAMA_8B, PlacementRequest(standby=True))


def test_gpus_0_means_cpu_cores_whatever_is_there() -> None:
    placement = plan_placement(host(4), SMOLLM2, PlacementRequest(gpus=0, tp=3, replicas=2))
    assert (placement.device, placement.gpus, placement.tp, placement.replicas) == ("cpu", (), 3, 2)


def test_pinned_memory_of_all_ranks_leaves_a_quarter_of_the_host() -> None:
    def plan(gib: int, n_gpus: int) -> Placement:
        there = host(n_gpus, memory_gib=64)
        return plan_placement(there, LLAMA_8B, PlacementRequest(tp=1, worker=WorkerSettings(host_cache_bytes=gib * GIB)))

    assert plan(48, 1).device == "cuda"
    assert plan(24, 2).replicas == 2
    said = r"^worker\.host_cache_bytes: expected at most 25769803776 \(three quarters of 64\.0 GiB of memory, for 2 ranks\)"
    with pytest.raises(ConfigError, match=said):
        plan(25, 2)
    assert plan_placement(host(0, memory_gib=8), None, PlacementRequest(worker=WorkerSettings(host_cache_bytes=8 * GIB)))


@pytest.mark.parametrize(
    ("there", "model", "asked", "expected"),
    [
        (host(4), LLAMA_8B, PlacementRequest(pp=2), (2, 1, 0)),
        (host(8), LLAMA_8B, PlacementRequest(pp=2, tp=2, replicas=1), (1, 2, 4)),
        (host(5), LLAMA_8B, PlacementRequest(pp=2), (2, 1, 1)),
        (host(2), LLAMA_70B, PlacementRequest(pp=2, max_length=4096), (1, 1, 0)),  # one alone does not hold it
        (host(4), None, PlacementRequest(gpus=4, pp=2), (2, 1, 0)),
        (host(0), SMOLLM2, PlacementRequest(pp=3, tp=3), (1, 3, 0)),
    ],
)
def test_stages_of_the_layout(
    there: Host, model: ModelConfig | None, asked: PlacementRequest, expected: tuple[int, int, int]
) -> None:
    placement = plan_placement(there, model, asked)
    assert (*layout(placement), placement.pp) == (*expected, asked.pp)
    assert placement.ranks == placement.replicas * placement.tp * asked.pp
    assert len(placement.gpus) == (placement.ranks if there.gpus else 0)
    assert f"x tp {placement.tp} x pp {asked.pp} on " in placement.summary()


@pytest.mark.parametrize(
    ("there", "model", "asked", "text"),
    [
        (host(2), LLAMA_8B, PlacementRequest(pp=3), "pp: expected at most 2 (2 GPUs), got 3"),
        (host(4), LLAMA_8B, PlacementRequest(pp=3, replicas=2), "pp: expected at most 2 (4 GPUs for 2 replicas), got 3"),
        (host(0), SMOLLM2, PlacementRequest(pp=31), "pp: expected at most 30 (the layers of the model), got 31"),
        (host(4), LLAMA_8B, PlacementRequest(pp=2, tp=4), "tp: expected at most 2 (4 GPUs of pp 2), got 4"),
    ],
)
def test_stages_that_cannot_be(there: Host, model: ModelConfig, asked: PlacementRequest, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        plan_placement(there, model, asked)
