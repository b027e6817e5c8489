"""GPUs that can be planned for without having them: memory, bandwidth and arithmetic by their makers' data sheets. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from messages.errors import ConfigError
from supervisor.placement.hardware import Gpu

_GB, _TB, _TFLOPS = 1e9, 1e12, 1e12
_DRIVER_SHARE = 0.985  # of the memory on the data sheet, what the driver shows beside error correction; where nobody has looked


@dataclass(frozen=True)
class GpuKind:
    """One kind. `flops`: dense, in 16-bit floats, a second. `is_measured`: docs/performance_gpus.md has steps of it."""

    name: str
    memory_bytes: int  # as the driver reports it
    bandwidth: float  # bytes a second, of its memory
    flops: float
    capability: tuple[int, int]
    is_measured: bool = False

    def gpu(self, index: int, memory_bytes: int | None = None) -> Gpu:
        """Such a device of a host; with another memory if that is given."""
        return Gpu(str(index), self.name, memory_bytes or self.memory_bytes, self.capability)


def _kind(
    name: str, gib: float, tb_per_s: float, tflops: float, capability: tuple[int, int], *, is_measured: bool = False
) -> GpuKind:
    """`gib`: as the driver reports it if `is_measured`, else as the data sheet says."""
    memory_bytes = int(gib * (1 << 30) * (1.0 if is_measured else _DRIVER_SHARE))
    return GpuKind(name, memory_bytes, tb_per_s * _TB, tflops * _TFLOPS, capability, is_measured)


KINDS = {
    "B200": _kind("NVIDIA B200", 180, 7.7, 2250, (10, 0)),
    "H200": _kind("NVIDIA H200", 139.8, 4.8, 989, (9, 0), is_measured=True),
    "H100": _kind("NVIDIA H100", 79.2, 3.35, 989, (9, 0), is_measured=True),
    "H100-PCIE": _kind("NVIDIA H100 PCIe", 80, 2.0, 756, (9, 0)),
    "GH200": _kind("NVIDIA GH200", 96, 4.0, 989, (9, 0)),
    "A100-80GB": _kind("NVIDIA A100 80GB", 80, 2.04, 312, (8, 0)),
    "A100-40GB": _kind("NVIDIA A100 40GB", 40, 1.56, 312, (8, 0)),
    "L40S": _kind("NVIDIA L40S", 45, 0.864, 362, (8, 9)),
    "L4": _kind("NVIDIA L4", 22.5, 0.3, 121, (8, 9)),
    "A10": _kind("NVIDIA A10", 22.5, 0.6, 125, (8, 6)),
    "A10G": _kind("NVIDIA A10G", 22.5, 0.6, 70, (8, 6)),
    "RTX-5090": _kind("NVIDIA GeForce RTX 5090", 32, 1.79, 210, (12, 0)),
    "RTX-4090": _kind("NVIDIA GeForce RTX 4090", 24, 1.01, 165, (8, 9)),
    "RTX-3090": _kind("NVIDIA GeForce RTX 3090", 24, 0.936, 71, (8, 6)),
    "T4": _kind("Tesla T4", 15, 0.32, 65, (7, 5)),
    "V100": _kind("Tesla V100", 32, 0.9, 125, (7, 0)),
}


def find_kind(name: str) -> GpuKind:
    """The kind that an operator names: "h200", "A100 80GB". Raises: ConfigError with the names that there are."""
    wanted = _plain(name)
    found = next((kind for key, kind in KINDS.items() if _plain(key) == wanted or _plain(kind.name) == wanted), None)
    if found is None:
        raise ConfigError(f"gpu: expected one of {', '.join(KINDS)}, got {name!r}")
    return found


def kind_of_device(name: str) -> GpuKind | None:
    """The kind of a device that the driver has named, such as "NVIDIA A100-SXM4-80GB"; None for others."""
    plain = _plain(name)
    keys = sorted(KINDS, key=len, reverse=True)
    words = [[_plain(word) for word in key.split("-")] for key in keys]
    tokens = set(re.split(r"[^a-z0-9]+", name.lower())) | {plain}
    return next(
        (
            KINDS[key]
            for key, parts in zip(keys, words, strict=True)
            if parts[0] in tokens and all(part in plain for part in parts)
        ),
        None,
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
