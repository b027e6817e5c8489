"""Which ranks say that they run urgent plans beside others."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_workers.settings import WorkerSettings

_SMALL, _LARGE = 135_000_000, 7_000_000_000  # parameters


def test_one_gpu_does_with_a_large_model_or_where_it_is_switched_on() -> None:
    assert WorkerSettings(device="cuda").beside_tokens(_LARGE) == 2048
    assert WorkerSettings(device="cuda").beside_tokens(_SMALL) == 0, "its steps are short"
    assert WorkerSettings(device="cuda", urgent_stream=True).beside_tokens(_SMALL) == 2048
    assert WorkerSettings(device="cuda", max_step_tokens=512).beside_tokens(_LARGE) == 512


@pytest.mark.parametrize(
    "changes",
    [{"urgent_stream": False}, {"device": "cpu"}, {"tp": 2}, {"pp": 2}, {"deterministic": True}, {"kv_dtype": "int8"}],
    ids=str,
)
def test_no_other_rank_does(changes: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"device": "cuda", "urgent_stream": True, **changes}
    assert WorkerSettings(**settings).beside_tokens(_LARGE) == 0
