"""Counting the bytes of a model's weights, which the first start with a vault does before it loads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workers.tiny_model import write_model

pytestmark = pytest.mark.slow

_COUNT = """
import sys
from pathlib import Path
import torch
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.shared_weights import CountedWeights
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
folder, counted = Path(sys.argv[1]), CountedWeights(is_packed=False)
build_model(read_model_config(folder), folder, WeightPlacement(torch.device("meta"), torch.float32, counted))
assert counted.n_bytes
print([name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_counting_imports_nothing_that_takes_seconds(tmp_path: Path) -> None:
    write_model(tmp_path)
    command = [sys.executable, "-c", _COUNT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120.0, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
