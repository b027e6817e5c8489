"""The GPU monitor's section of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec


class GpuMonitorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which GPUs are read, and how often."""

    enabled: bool = True  # false: no process reads the GPUs, and there are no metrics of them
    # GPUs to read, each by its index or UUID in nvidia-smi; empty: those that the server computes on; none on CPU cores
    devices: list[str] = []
    every_s: Annotated[float, msgspec.Meta(ge=1.0, le=3600.0)] = 1.0  # between two readings of a GPU
    hung_s: Annotated[float, msgspec.Meta(gt=0.0, le=3600.0)] = 5.0  # a reading that takes longer counts as hung
