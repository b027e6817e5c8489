"""Checks every kernel against torch and times it, on one CUDA device: `python3 ops/gpu/kernels_check.py [section ...]`.

Each case stands alone: what fails is printed and the next goes on. Exit status 1 when anything failed."""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton  # pyright: ignore[reportMissingImports]

from ops.gpu import kernel_sweeps as sweeps
from ops.gpu.model_steps import compare_with_torch, time_decode, time_prefill
from tests.support.workers.kernels.attention_checks import ATTENTION_CHECKS
from tests.support.workers.kernels.kernel_checks import KERNEL_CHECKS, Check
from tests.support.workers.kernels.sampling_checks import SAMPLING_CHECKS

_BEGAN = time.monotonic()
_FAILED: list[str] = []
_DECODE_SIZES, _PROFILED_SIZES = (1, 2, 8, 64, 256), (1, 64, 256)
_PREFILLS = {"prefill 1 x 2048": [(0, 2048)], "prefill 16 x 128": [(0, 128)] * 16}


def attempt(title: str, run: Callable[..., None], *arguments: object) -> None:
    """Runs it, prints a traceback instead of dying."""
    try:
        run(*arguments)
        torch.cuda.synchronize()
    except Exception:
        _FAILED.append(title)
        print(f"FAILED {title}\n{traceback.format_exc(limit=-6)}", flush=True)
    gc.collect()
    torch.cuda.empty_cache()


def run_check(check: Check, dtype: torch.dtype) -> None:
    """One check from a fixed seed."""
    torch.manual_seed(7)
    check(sweeps.DEVICE, dtype)


def check_kernels() -> None:
    """All checks in the dtype that is served and in the one that shows wrong arithmetic best."""
    for name, check in {**KERNEL_CHECKS, **ATTENTION_CHECKS, **SAMPLING_CHECKS}.items():
        for dtype in (torch.bfloat16, torch.float32):
            attempt(f"check {name} {dtype}", run_check, check, dtype)
        print(f"{time.monotonic() - _BEGAN:5.1f} s  checked {name}", flush=True)


def check_models() -> None:
    """Whole models against the torch back ends."""
    for name in ("smollm2-135m", "qwen3-0.6b"):
        attempt(f"compare {name}", compare_with_torch, name)


def time_models() -> None:
    """Decode steps by graph, then prefills."""
    for name in ("smollm2-135m", "llama-8b", "llama-8b+fp8", "qwen3-0.6b"):
        attempt(f"decode {name}", time_decode, name, _DECODE_SIZES, _PROFILED_SIZES)
    for name in ("smollm2-135m", "llama-8b", "llama-8b+fp8"):
        for title, rows in _PREFILLS.items():
            attempt(f"{name} {title}", time_prefill, name, rows, title)


def time_small() -> None:
    """The small operations and sampling."""
    for case in sweeps.SMALL_CASES:
        attempt(f"small {case}", sweeps.time_small, *case)
    for case in sweeps.SAMPLING_CASES:
        attempt(f"sampling {case}", sweeps.time_sampling, *case)


def sweep_decode() -> None:
    """Decode attention."""
    for case in sweeps.DECODE_CASES:
        attempt(f"decode {case}", sweeps.sweep_decode, *case)


def sweep_prefill() -> None:
    """Prefill attention."""
    for case in sweeps.PREFILL_CASES:
        attempt(f"prefill {case}", sweeps.sweep_prefill, *case)


def sweep_gemv() -> None:
    """Skinny products."""
    for case in sweeps.GEMV_CASES:
        attempt(f"gemv {case}", sweeps.sweep_gemv, *case)


def sweep_norm_gemv() -> None:
    """Skinny products with the norm in front."""
    for case in sweeps.NORM_GEMV_CASES:
        attempt(f"norm_gemv {case}", sweeps.sweep_norm_gemv, *case)


SECTIONS: dict[str, Callable[[], None]] = {
    "kernels": check_kernels,
    "models": check_models,
    "steps": time_models,
    "small": time_small,
    "decode": sweep_decode,
    "prefill": sweep_prefill,
    "gemv": sweep_gemv,
    "norm_gemv": sweep_norm_gemv,
}


def main() -> int:
    """Runs the named sections, all by default."""
    print(f"torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.get_device_name(sweeps.DEVICE)}", flush=True)
    for name in sys.argv[1:] or SECTIONS:
        print(f"== {name} at {time.monotonic() - _BEGAN:.1f} s", flush=True)
        attempt(name, SECTIONS[name])
    print(f"== done at {time.monotonic() - _BEGAN:.1f} s; failed: {_FAILED or 'nothing'}", flush=True)
    return 1 if _FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
