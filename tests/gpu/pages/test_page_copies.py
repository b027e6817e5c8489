"""Copies of pages on a CUDA device: the same law as on a CPU."""

from __future__ import annotations

import pytest

from tests.gpu_workers.layers.test_kv_pages import test_copies_of_pages  # noqa: F401

pytestmark = pytest.mark.gpu


@pytest.fixture
def device() -> str:
    return "cuda"
