"""Which ranks say that they run urgent plans beside others."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_workers.settings import WorkerSettings


def test_one_gpu_does_where_it_is_switched_on() -> None:
    assert WorkerSettings(device="cuda", urgent_stream=True).beside_tokens == 2048
    assert WorkerSettings(device="cuda", urgent_stream=True, max_step_tokens=512).beside_tokens == 512


@pytest.mark.parametrize(
    "changes",
    [{"urgent_stream": False}, {"device": "cpu"}, {"tp": 2}, {"pp": 2}, {"deterministic": True}, {"kv_dtype": "int8"}],
    ids=str,
)
def test_no_other_rank_does(changes: dict[str, Any]) -> None:
    assert WorkerSettings(**({"device": "cuda", "urgent_stream": True} | changes)).beside_tokens == 0
