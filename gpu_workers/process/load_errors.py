"""Turns errors of loading that every start would meet again into messages that say what to do about them."""

from __future__ import annotations

from subprocess import CalledProcessError

from safetensors import SafetensorError

from gpu_workers.model_store.model_config import ModelConfigError
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError

_NO_HOST_MEMORY = ("can't allocate memory", "not enough memory")
_NO_CUDA = ("No CUDA GPUs are available", "Torch not compiled with CUDA", "Found no NVIDIA driver", "CUDA driver version")
_NO_COMPILER = "Failed to find C compiler"


def explain(error: Exception, settings: WorkerSettings) -> ConfigError | None:
    """The ConfigError to raise instead of `error`; None for an error that is not known here. Imports torch."""
    import torch

    from gpu_workers.models.weights import WeightsError
    from gpu_workers.vault.cuda_driver import CudaError

    if isinstance(error, ModelConfigError | WeightsError):
        return ConfigError(str(error))
    text = next(iter(str(error).splitlines()), "")
    if isinstance(error, torch.OutOfMemoryError) or (isinstance(error, CudaError) and "out of memory" in text):
        return ConfigError(
            f"the model does not fit into the memory of this GPU that is free; it needs less with more GPUs per replica (--tp),"
            f" fewer sequences (--max-sequences) or a shorter --max-length ({text})"
        )
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(part in text for part in _NO_HOST_MEMORY)):
        return ConfigError(f"the model does not fit into the memory of this host; --dtype bfloat16 needs less ({text})")
    if isinstance(error, SafetensorError):
        return ConfigError(f"{settings.model_folder}: expected whole safetensors files, got a damaged one ({text})")
    if isinstance(error, RuntimeError | AssertionError) and any(part in text for part in _NO_CUDA):
        return ConfigError(f"PyTorch cannot use the GPU; install its build for CUDA or run with --gpus 0 ({text})")
    if isinstance(error, CalledProcessError) or (isinstance(error, RuntimeError) and _NO_COMPILER in text):
        return ConfigError(
            f"Triton compiles a small C program for each kernel, and needs a C compiler with the headers of Python and of the C"
            f" library for that: sudo apt-get install gcc libc6-dev python3-dev ({text})"
        )
    return None
