"""`deterministic` on a CUDA device: each kernel, and whole runs; in Triton's interpreter the kernels alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
import torch

pytest.importorskip("triton")

from gpu_workers.runner.model_loading import load_model_runner
from gpu_workers.settings import WorkerSettings
from tests.support.workers.deterministic_runs import differences, make_cases
from tests.support.workers.device_choice import DTYPES, kernel_device
from tests.support.workers.kernels.deterministic_checks import DETERMINISTIC_CHECKS

pytestmark = pytest.mark.gpu
KEYS = {
    "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 6, "num_attention_heads": 9, "num_key_value_heads": 3,
    "intermediate_size": 1536, "vocab_size": 4096, "max_position_embeddings": 1024,
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", DETERMINISTIC_CHECKS)
def test_kernel(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    DETERMINISTIC_CHECKS[name](kernel_device(), dtype)


@pytest.mark.parametrize("cuda_graphs", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_runs_are_the_same_alone_crowded_and_continued(
    tmp_path: Path, dtype: Literal["bfloat16", "float16", "float32"], cuda_graphs: bool
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    (tmp_path / "config.json").write_text(json.dumps(KEYS))
    settings = WorkerSettings(
        model_folder=str(tmp_path), load_format="random", dtype=dtype, device="cuda", n_slots=32, max_step_tokens=2048,
        kv_memory_bytes=1 << 30, deterministic=True, cuda_graphs=cuda_graphs,
    )  # fmt: skip
    runner = load_model_runner(settings, tmp_path, lambda phase, fraction: None)
    lengths = (1, 5, 33, 64, 100, 150, 257, 400, 511, 515, 600, 17)
    assert differences(runner, make_cases(lengths, KEYS["vocab_size"]), 20) == []
