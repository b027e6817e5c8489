"""What the GPUs do now, as lines for the status table."""

from __future__ import annotations

from messages.ids import role_of
from messages.lifecycle.gpu_figures import GpuFigures, gpu_figures
from messages.lifecycle.tree import StatusReport


def gpu_lines(report: StatusReport) -> list[str]:
    """One line for each GPU that is read; none without a GPU monitor."""
    statistics = next((child.statistics for child in report.children if role_of(child.name) == "gpu_monitor"), {})
    return [f"GPU {gpu}: {_text(figures)}" for gpu, figures in gpu_figures(statistics).items()]


def _text(figures: GpuFigures) -> str:
    if not figures.readable:
        return "cannot be read: the log of gpu_monitor/0 says why"
    parts = []
    if figures.busy_percent is not None:
        parts.append(f"busy {figures.busy_percent:.0f} %")
    if figures.memory_used_bytes is not None and figures.memory_total_bytes:
        parts.append(f"memory {figures.memory_used_bytes / 1e9:.1f} of {figures.memory_total_bytes / 1e9:.1f} GB")
    if figures.power_watts is not None:
        limit = "" if figures.power_limit_watts is None else f" of {figures.power_limit_watts:.0f}"
        parts.append(f"{figures.power_watts:.0f}{limit} W")
    if figures.temperature_celsius is not None:
        parts.append(f"{figures.temperature_celsius:.0f} °C")
    if figures.slow:
        parts.append("slowed by heat or power")
    if figures.uncorrected_ecc_errors:
        parts.append(f"{figures.uncorrected_ecc_errors:.0f} uncorrected ECC errors")
    return ", ".join(parts)
