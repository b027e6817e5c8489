"""The roofline beside the figures of H200s and H100s that docs/performance_gpus.md has: each within the uncertainty that a plan
states. The rows are quoted, so a figure that is measured again is compared again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.settings import KvDtype, Quantization, WorkerSettings
from ops.bench.commands.gpu_batch import nano_workload
from supervisor.capacity.capacity_plan import Forecast
from supervisor.capacity.forecast import forecast
from supervisor.capacity.gpu_kinds import KINDS
from supervisor.capacity.replica_times import ReplicaTimes
from supervisor.capacity.steady_state import ReplicaRoom, steady_state
from supervisor.capacity.workload import OfferedLoad
from supervisor.config.server_config import ServerConfig
from supervisor.placement.hardware import Host
from supervisor.placement.host import placed
from tests.support.supervisor.known_models import LLAMA_8B, SMOLLM2

PERFORMANCE = (Path(__file__).parents[3] / "docs" / "performance_gpus.md").read_text(encoding="utf-8")
MEAN_CONTEXT = 257  # of gpu-batch's times per token: prompts of 128, tokens 2 to 258
PROMPT = 128
FP8: Quantization = "fp8"


def of(
    model: ModelConfig, kind: str = "H200", tp: int = 1, quantization: Quantization = "none", kv_dtype: KvDtype = "auto"
) -> Forecast:
    """The forecast for one replica."""
    worker = WorkerSettings(quantization=quantization, kv_dtype=kv_dtype)
    config = ServerConfig(tp=tp, max_length=4096, worker=worker)
    host = Host(tuple(KINDS[kind].gpu(index) for index in range(tp)), 1 << 40)
    return forecast(config, model, placed(host, model, config))


STEPS = [  # (row of the page, model and device, keys, {batch: ms})
    ("| | ms per token at batch 1 / 8 | 3.891 / 4.747 |", of(LLAMA_8B), MEAN_CONTEXT, {1: 3.891, 8: 4.747}),
    ("| | at batch 64 / 256 | 5.563 / 10.00 |", of(LLAMA_8B), MEAN_CONTEXT, {64: 5.563, 256: 10.00}),
    ("| Llama-3.1-8B | 4.400 | 4.478 | 4.628 | 4.790 | 5.119 | 6.632 | 9.696 |", of(LLAMA_8B), 225,
     {2: 4.400, 8: 4.478, 16: 4.628, 32: 4.790, 64: 5.119, 128: 6.632, 256: 9.696}),
    ("| SmolLM2-135M | 0.619 | 0.662 | 0.708 | 0.738 | 0.851 | 1.079 | 1.370 |", of(SMOLLM2), 225,
     {2: 0.619, 8: 0.662, 16: 0.708, 32: 0.738, 64: 0.851, 128: 1.079, 256: 1.370}),
    ("| | ms per token at batch 1 / 8 | 0.428 / 0.839 |", of(SMOLLM2), MEAN_CONTEXT, {1: 0.428, 8: 0.839}),
    ("| | at batch 64 / 256 | 1.079 / 1.560 |", of(SMOLLM2), MEAN_CONTEXT, {64: 1.079, 256: 1.560}),
    ("| | ms per token at batch 1 / 64 / 256 | 2.74 / 4.23 / 7.53 |", of(LLAMA_8B, tp=2), MEAN_CONTEXT,
     {1: 2.74, 64: 4.23, 256: 7.53}),
    ("| | ms per token at batch 1 / 64 / 256 | 2.07 / 3.24 / 5.33 |", of(LLAMA_8B, tp=4), MEAN_CONTEXT,
     {1: 2.07, 64: 3.24, 256: 5.33}),
    ("| 1, 1,000 | 5.36 |", of(LLAMA_8B, "H100"), 1000, {1: 5.36}),
    ("| 128, 1,000 | 12.64 | 10.29 (1.23)", of(LLAMA_8B, "H100"), 1000, {128: 12.64}),
    ("| 128, 1,000 | 12.64 | 10.29 (1.23)", of(LLAMA_8B, "H100", kv_dtype="fp8"), 1000, {128: 10.29}),
    ("| 32, 8,192 | 17.34 | 12.63 (1.37)", of(LLAMA_8B, "H100"), 8192, {32: 17.34}),
    ("| 32, 8,192 | 17.34 | 12.63 (1.37)", of(LLAMA_8B, "H100", kv_dtype="fp8"), 8192, {32: 12.63}),
    ("a token of 64 streams 5.33, 5.12 and 3.72 ms", of(LLAMA_8B, quantization=FP8, kv_dtype="fp8"), MEAN_CONTEXT, {64: 3.72}),
]  # fmt: skip


@pytest.mark.parametrize(("row", "found", "keys", "ms_by_batch"), STEPS, ids=[row[0] for row in STEPS])
def test_a_step_takes_what_was_measured(row: str, found: Forecast, keys: int, ms_by_batch: dict[int, float]) -> None:
    assert row in PERFORMANCE
    for batch, ms in ms_by_batch.items():
        assert found.times.step_s(batch, keys) * 1e3 == pytest.approx(ms, rel=found.uncertainty), batch


@pytest.mark.parametrize(
    ("row", "found", "measured_ms"),
    [
        ("| | first token, 128 in / 2048 in, ms | 10.0 / 52.3 |", of(LLAMA_8B), (10.0, 52.3)),
        ("| | first token, 128 in / 2048 in, ms | 5.5 / 7.4 |", of(SMOLLM2), (5.5, 7.4)),
        ("| | first token, 128 in / 2048 in, ms | 8.9 / 34.7 |", of(LLAMA_8B, tp=2), (8.9, 34.7)),
        ("| | first token, 128 in / 2048 in, ms | 9.1 / 26.5 |", of(LLAMA_8B, tp=4), (9.1, 26.5)),
    ],
)
def test_a_lone_first_token_comes_when_it_was_measured(row: str, found: Forecast, measured_ms: tuple[float, float]) -> None:
    assert row in PERFORMANCE
    for n_tokens, ms in zip((PROMPT, 2048), measured_ms, strict=True):
        expected_ms = (found.times.hop_s + found.times.lone_prompt_s(n_tokens)) * 1e3
        assert expected_ms == pytest.approx(ms, rel=found.uncertainty), n_tokens


@pytest.mark.parametrize(
    ("row", "found", "tokens_per_s"),
    [
        ("| Llama-3.1-8B | batch workload, output tokens/s | 10,217 |", of(LLAMA_8B), 10_217),
        ("| SmolLM2-135M | batch workload, output tokens/s | 59,914 |", of(SMOLLM2), 59_914),
        ("| Llama-3.1-8B, tp 2 | batch workload, output tokens/s | 14,983 |", of(LLAMA_8B, tp=2), 14_983),
        ("| Llama-3.1-8B, tp 4 | batch workload, output tokens/s | 20,400 |", of(LLAMA_8B, tp=4), 20_400),
        ("output tokens/s, one run each: bfloat16 8,178", of(LLAMA_8B, "H100"), 8178),
        ("bfloat16 9,821, `--kv-dtype fp8` 10,559", of(LLAMA_8B, kv_dtype="fp8"), 10_559),
        ("`--quantization fp8 --kv-dtype fp8` 13,849", of(LLAMA_8B, quantization=FP8, kv_dtype="fp8"), 13_849),
    ],
)
def test_the_batch_workload_takes_what_was_measured(row: str, found: Forecast, tokens_per_s: float) -> None:
    assert row in PERFORMANCE
    assert batch_workload(found.times) == pytest.approx(tokens_per_s, rel=found.uncertainty)


def batch_workload(times: ReplicaTimes) -> float:
    """Output tokens a second of the 256 sequences of `gpu-batch`: all prompts, then steps with those that have not ended."""
    prompts, outputs = nano_workload(256)
    lengths: Sequence[int] = list(map(len, prompts))
    total_s = sum(map(times.prompt_s, lengths))
    for step in range(max(outputs)):
        keys = [length + step for length, output in zip(lengths, outputs, strict=True) if output > step]
        total_s += times.step_s(len(keys), sum(keys) / len(keys))
    return sum(outputs) / total_s


@pytest.mark.parametrize(
    ("row", "rate_per_s", "first_ms", "token_ms"),
    [("| 4 | 18.5 / 28.4 |", 4, 18.5, 4.57), ("| 20 | 18.8 / 32.8 |", 20, 18.8, 4.78)],
)
def test_a_light_load_has_the_times_that_were_measured(row: str, rate_per_s: float, first_ms: float, token_ms: float) -> None:
    assert row in PERFORMANCE
    found = of(LLAMA_8B)
    steady = steady_state(found.times, OfferedLoad(rate_per_s, 128, 128), ReplicaRoom(256, lease_s=0.005))
    assert steady.first_token_s * 1e3 == pytest.approx(first_ms, rel=found.uncertainty)
    assert steady.token_s * 1e3 == pytest.approx(token_ms, rel=found.uncertainty)
