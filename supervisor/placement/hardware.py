"""What a machine has for models: its GPUs and its memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One device that this process may use."""

    device_id: str  # as CUDA_VISIBLE_DEVICES names it
    name: str
    memory_bytes: int
    capability: tuple[int, int]  # CUDA compute capability


@dataclass(frozen=True)
class Host:
    """The machine, or what a container may use of it."""

    gpus: tuple[Gpu, ...]
    memory_bytes: int
    has_exact_products: bool = False  # its processor has AVX-512 or AVX2, and kernels may be compiled
    has_int8_dot: bool = False  # its processor has instructions for products of 8-bit integers
