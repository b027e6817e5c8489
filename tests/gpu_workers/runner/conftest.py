"""What tests of the model runner share: a tiny random model on the CPU. Tests reset it, each by a scheduler of its own."""

from __future__ import annotations

import pytest

from gpu_workers.runner.model_runner import ModelRunner
from tests.support.workers.tiny_model import load_runner, write_model


@pytest.fixture(scope="package")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return load_runner(write_model(tmp_path_factory.mktemp("tiny")), "cpu")
