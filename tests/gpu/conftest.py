"""Fixtures of the tests that need a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.custody.descriptor_store import StoreProcess


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A descriptor store in a process of its own, as the vault of replica 0 is."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    one = StoreProcess(tmp_path / "vault-0")
    yield one
    one.kill()
