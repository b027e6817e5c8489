"""What this processor can do, found out without LLVM and torch, so that the supervisor can ask before a rank is started."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
_WIDE, _WIDE_INT8 = "avx512f", {"avx512_vnni", "avx512bw"}
_NARROW_FLOATS, _NARROW_INT8 = {"avx2", "fma", "f16c"}, {"avx2", "fma", "avx_vnni"}


def may_execute() -> bool:
    """True if this process may make memory executable that it has written. A hardened service may not."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return protect(ctypes.addressof(ctypes.c_char.from_buffer(page)), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) == 0


def has_exact_products(cpu_info: Path = _CPU_INFO) -> bool:
    """True if kernels can be compiled here that multiply floats with stored integers faster than floats are read: with AVX-512,
    or with AVX2, FMA and F16C. cpu_info: Linux's description of the processors."""
    flags = _flags(cpu_info)
    return (_WIDE in flags or flags >= _NARROW_FLOATS) and may_execute()


def has_int8_dot(cpu_info: Path = _CPU_INFO) -> bool:
    """True if kernels can be compiled here that use instructions for products of 8-bit integers (VNNI), as
    `Machine.has_int8_dot` says in a rank. cpu_info: Linux's description of the processors."""
    flags = _flags(cpu_info)
    needed = _WIDE_INT8 if _WIDE in flags else _NARROW_INT8
    return needed <= flags and may_execute()


def _flags(cpu_info: Path) -> set[str]:
    """The instructions of the first processor by Linux's names; none where they are not known."""
    try:
        lines = cpu_info.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set[str]())
