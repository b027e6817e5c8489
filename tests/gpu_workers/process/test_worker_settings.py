"""What a worker reads when it starts, what it makes of it, and what it counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpu_workers.process.metrics import WorkerMetrics
from gpu_workers.runner.memory_budget import (
    bytes_of_others,
    count_least_pages,
    count_pages,
    cpu_kv_bytes,
    cuda_kv_bytes,
)
from gpu_workers.runner.memory_estimate import GIB, memory_bytes
from gpu_workers.settings import WorkerSettings, read_settings
from messages.errors import ConfigError
from messages.steps import Plan, Result
from messages.wire.arrays import int32s


def test_unknown_and_wrong_fields_are_named() -> None:
    with pytest.raises(ConfigError, match="slots"):
        read_settings(b'{"slots": 4}')
    with pytest.raises(ConfigError, match="memory_share"):
        read_settings(b'{"memory_share": 1.5}')
    with pytest.raises(ConfigError, match=r"worker\.rank: expected less than tp \* pp = 2, got 2"):
        read_settings(b'{"rank": 2, "tp": 2}')
    said = r"^worker\.disk_cache_bytes: expected 0 without worker\.host_cache_bytes \(--host-cache\), got 5$"
    with pytest.raises(ConfigError, match=said):
        read_settings(b'{"disk_cache_bytes": 5}')
    with pytest.raises(ConfigError, match=r"^worker\.kv_least_bytes: expected 0 on GPUs, .*, got 5$"):
        read_settings(b'{"kv_least_bytes": 5, "device": "cuda"}')
    with pytest.raises(ConfigError, match=r"^worker\.kv_least_bytes: expected at most worker\.kv_memory_bytes = 4, got 5$"):
        read_settings(b'{"kv_least_bytes": 5, "kv_memory_bytes": 4}')
    with pytest.raises(ConfigError, match=r"^worker\.host_cache_least_bytes: expected 0 on GPUs, .*, got 5$"):
        read_settings(b'{"host_cache_least_bytes": 5, "host_cache_bytes": 9, "device": "cuda"}')
    with pytest.raises(ConfigError, match=r"^worker\.host_cache_least_bytes: expected at most .*host_cache_bytes = 4, got 5$"):
        read_settings(b'{"host_cache_least_bytes": 5, "host_cache_bytes": 4}')
    with pytest.raises(ConfigError, match=r"^worker\.host_cache_least_bytes: expected 0 with .*dtype adaptive, .*, got 5$"):
        read_settings(b'{"host_cache_least_bytes": 5, "host_cache_bytes": 9, "host_cache_dtype": "adaptive"}')
    cold, host = '"host_cache_dtype": "int4"', '"host_cache_bytes": 5'
    for said, others in (
        ("without worker.host_cache_bytes (--host-cache)", ""),
        ("with worker.deterministic, because pages that come back would be rounded", f', {host}, "deterministic": true'),
        ("with worker.kv_dtype int4, whose pages are as small", f', {host}, "kv_dtype": "int4"'),
    ):
        with pytest.raises(ConfigError, match=f"^worker.host_cache_dtype: expected same {re.escape(said)}, got int4$"):
            read_settings(f"{{{cold}{others}}}".encode())
    for device in ("cpu", "cuda"):
        assert read_settings(f'{{{cold}, {host}, "device": "{device}"}}'.encode()).host_cache_dtype == "int4"


def test_zero_means_what_suits_the_device() -> None:
    cpu, cuda = WorkerSettings(model_folder="m"), WorkerSettings(model_folder="m", device="cuda")
    assert (cpu.slots, cuda.slots) == (64, 256)
    assert (cpu.lease_steps, cuda.lease_steps, WorkerSettings().lease_steps) == (4, 8, 1)
    assert (cpu.lease_seconds, cuda.lease_seconds) == (0.04, 0.005)
    assert cuda.dtype_name == "bfloat16"
    assert WorkerSettings(n_slots=2000).step_tokens == 2000  # one token for each slot always fits
    assert WorkerSettings(max_length=9000).length_limit(8192) == 8192
    assert WorkerSettings(max_length=512).length_limit(8192) == 512


def test_pages_fill_the_budget_but_not_more_than_the_slots_can() -> None:
    assert count_pages(kv_bytes=1000, bytes_per_page=10, n_slots=64, max_length=8192) == 100
    assert count_pages(kv_bytes=1000, bytes_per_page=10, n_slots=2, max_length=33) == 6
    with pytest.raises(ConfigError, match=r"worker\.kv_memory_bytes: expected room for 4 pages of 10 bytes, got 30"):
        count_pages(kv_bytes=30, bytes_per_page=10, n_slots=64, max_length=8192)


def test_cuda_budget_is_what_weights_and_activations_leave() -> None:
    left = cuda_kv_bytes(
        total_bytes=140 * GIB, free_bytes=120 * GIB, activation_bytes=5 * GIB, memory_share=0.9, reserve_bytes=GIB
    )
    assert left == int(140 * GIB * 0.9) - 26 * GIB


@pytest.mark.parametrize(("shared_gib", "expected_gib"), [(0, 52), (15, 37)])
def test_two_gangs_count_what_they_share_once(shared_gib: int, expected_gib: int) -> None:
    left = cuda_kv_bytes(140 * GIB, 120 * GIB, 5 * GIB, 0.9, GIB, n_gangs=2, shared_bytes=shared_gib * GIB)
    assert left == int(140 * GIB * 0.9) - expected_gib * GIB


def test_other_programs_do_not_count_towards_the_share_of_a_gpu() -> None:
    """Two servers with 0.45 each fit on one GPU, whichever starts first."""
    alone = cuda_kv_bytes(140 * GIB, 120 * GIB, 5 * GIB, 0.45, GIB)
    others_bytes = bytes_of_others(64 * GIB)
    assert cuda_kv_bytes(140 * GIB, 57 * GIB, 5 * GIB, 0.45, GIB, others_bytes=others_bytes) == alone == 37 * GIB


def test_pages_take_no_more_than_other_programs_leave() -> None:
    assert cuda_kv_bytes(140 * GIB, 30 * GIB, 5 * GIB, 0.9, GIB, others_bytes=100 * GIB) == 24 * GIB


def test_a_process_alone_on_a_gpu_has_no_others() -> None:
    assert bytes_of_others(GIB // 2) == 0


def test_cpu_budget_is_modest_unless_told() -> None:
    assert cpu_kv_bytes(123) == 123
    assert 0 < cpu_kv_bytes(0) <= 2 * GIB
    with pytest.raises(ConfigError, match=f"kv_memory_bytes: expected at most .*, got {1 << 60}"):
        cpu_kv_bytes(1 << 60)


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_container_has_less_memory_than_its_machine(tmp_path: Path, file: str) -> None:
    whole = memory_bytes(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("max\n")
    assert memory_bytes(tmp_path) == whole > GIB
    (tmp_path / file).write_text(f"{GIB}\n")
    assert memory_bytes(tmp_path) == GIB


def test_metrics_show_that_a_batch_runs_together() -> None:
    metrics = WorkerMetrics()
    empty: dict[str, Any] = {name: int32s() for name in ("new_tokens", "page_slots", "page_indices", "page_ids")}
    lists = {"row_slots": [0, 1, 2], "row_starts": [5, 6, 0], "row_counts": [1, 3, 4], "row_samples": [1, 1, 0]}
    rows: dict[str, Any] = {name: int32s(values) for name, values in lists.items()}
    drafts: dict[str, Any] = {"draft_counts": int32s([0, 2, 0]), "draft_ids": int32s([7, 7])}
    metrics.count_plan(Plan(epoch=1, step=1, n_steps=1, new=[], **empty, **rows, **drafts))
    metrics.count_result(
        Result(epoch=1, step=1, slots=int32s([0, 1]), counts=int32s([1, 2]), ids=int32s([3, 7, 4]), compute_s=0.003)
    )
    values = {s.name: s.value for family in metrics.collect() for s in family.samples if not s.labels}
    assert values["tardigrade_worker_steps_total"] == 1
    assert values["tardigrade_worker_tokens_computed_total"] == 8
    assert values["tardigrade_worker_tokens_sampled_total"] == 3
    assert values["tardigrade_worker_drafts_verified_total"] == 2
    assert values["tardigrade_worker_drafts_accepted_total"] == 1
    assert values["tardigrade_worker_rows_now"] == 3
    buckets = {
        s.labels["le"]: s.value for f in metrics.collect() for s in f.samples if s.name == "tardigrade_worker_rows_bucket"
    }
    assert (buckets["2"], buckets["4"], buckets["+Inf"]) == (0, 1, 1)
    assert values["tardigrade_worker_step_seconds_sum"] == pytest.approx(0.003)


def test_the_least_number_of_pages_has_room_for_its_bytes_and_for_a_short_sequence() -> None:
    assert count_least_pages(0, 100, 50) == 0
    assert count_least_pages(1000, 100, 50) == 10
    assert count_least_pages(1001, 100, 50) == 11
    assert count_least_pages(1, 100, 50) == 4
    assert count_least_pages(10**9, 100, 50) == 50
