"""Errors of loading that another start would meet again, said in words that help."""

from __future__ import annotations

from subprocess import CalledProcessError

import pytest
import torch
from safetensors import SafetensorError

from gpu_workers.model_store.model_config import ModelConfigError
from gpu_workers.models.weights import WeightsError
from gpu_workers.process.load_errors import explain
from gpu_workers.settings import WorkerSettings

SETTINGS = WorkerSettings(model_folder="/models/m")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "does not fit into the memory of this GPU"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"), "the memory of this host"),
        (MemoryError(), "the memory of this host"),
        (SafetensorError("invalid header"), "/models/m: expected whole safetensors files, got a damaged one (invalid header)"),
        (RuntimeError("No CUDA GPUs are available"), "--gpus 0 (No CUDA GPUs are available)"),
        (AssertionError("Torch not compiled with CUDA enabled"), "install its build for CUDA"),
        (RuntimeError("Failed to find C compiler. Please specify via CC environment variable."), "apt-get install gcc"),
        (CalledProcessError(1, ["gcc", "main.c", "-I/usr/include/python3.12"]), "the headers of Python"),
        (WeightsError("2 tensors do not fit"), "2 tensors do not fit"),
        (ModelConfigError("hidden_act: expected silu, got 'gelu'"), "hidden_act: expected silu, got 'gelu'"),
    ],
)
def test_a_known_error_is_explained_in_one_line(error: Exception, said: str) -> None:
    explanation = explain(error, SETTINGS)
    assert explanation is not None
    assert said in str(explanation)
    assert "\n" not in str(explanation)


def test_an_unknown_error_is_left_alone() -> None:
    assert explain(RuntimeError("CUDA error: an illegal memory access"), SETTINGS) is None
    assert explain(KeyError("x"), SETTINGS) is None
