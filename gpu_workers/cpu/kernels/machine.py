"""Finds out which kernels this machine can compile and run. Imports no optional package at the top."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gpu_workers.cpu.instructions import may_execute
from gpu_workers.layers.page_format import INT4


@dataclass(frozen=True)
class Machine:
    """The properties of a processor that kernels depend on: width and number of vector registers, instructions."""

    lanes: int  # float32 in a vector: a power of two
    registers: int
    has_bf16_dot: bool = False  # AVX512-BF16: pairs of bfloat16 multiplied and summed in float32
    is_x86: bool = True
    has_int8_dot: bool = False  # VNNI: four products of 8-bit integers summed in a 32-bit lane
    has_bf16_tiles: bool = False  # AMX: products of whole tiles of bfloat16, which oneDNN uses and our kernels do not


@cache
def openmp() -> Any:
    """The OpenMP runtime of this process, with the entry point of GCC's (LLVM's and Intel's have it too).

    Raises: OSError when there is none, or more than one."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    found = sorted(path for path in paths if Path(path).name.startswith(("libgomp", "libiomp", "libomp")))
    beside_torch = [path for path in found if Path(torch.__file__).parent.parent in Path(path).parents]
    chosen = beside_torch or found
    if len(chosen) != 1:
        raise OSError(f"OpenMP: expected one runtime in this process, got {found}")
    library = ctypes.CDLL(chosen[0])
    library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    return library


@cache
def this_machine() -> Machine | None:
    """The machine of this process; None where kernels cannot be compiled, run or spread over threads."""
    if not may_execute():
        return None
    try:
        from llvmlite import binding

        openmp()
        features = binding.get_host_cpu_features()
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None
    if features.get("avx512f"):
        has_int8_dot = bool(features.get("avx512vnni") and features.get("avx512bw"))
        has_tiles = bool(features.get("amx-bf16"))
        return Machine(16, 32, bool(features.get("avx512bf16")), has_int8_dot=has_int8_dot, has_bf16_tiles=has_tiles)
    if features.get("avx2") and features.get("fma"):
        return Machine(8, 16, has_int8_dot=bool(features.get("avxvnni")))
    return Machine(8, 16, is_x86=False) if platform.machine() == "aarch64" else None


def can_attend(dtype: torch.dtype, head_dim: int, page_dtype: torch.dtype | None = None) -> bool:
    """True if this machine can compile `paged_attention` for this dtype, head size and dtype of pages (None: the first one).
    Pages of small integers need a half of the fields of a value to fill vectors."""
    machine = this_machine()
    if machine is None or dtype not in (torch.float32, torch.bfloat16):
        return False
    return head_dim % (machine.lanes * (4 if page_dtype == INT4 else 1)) == 0
