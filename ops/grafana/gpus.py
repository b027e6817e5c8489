"""The dashboard of the GPUs: what they do, and how they are."""

from __future__ import annotations

from ops.grafana.panels import INSTANCE, DashboardPage, Panel, PanelUnit, Query, Section, Shape

_EACH = "GPU {{gpu}}"


def _gpu(name: str) -> str:
    return f"tardigrade_gpu_{name}{{{INSTANCE}}}"


_WORK = Section(
    "Work",
    (
        Panel("Busy", "Share of time in which a kernel ran.", (Query(_gpu("busy_ratio"), _EACH),), PanelUnit.SHARE, most=1),
        Panel(
            "Memory busy",
            "Share of time in which memory was read or written.",
            (Query(_gpu("memory_busy_ratio"), _EACH),),
            PanelUnit.SHARE,
            most=1,
        ),
        Panel(
            "Memory",
            "Taken by processes, and all there is.",
            (
                Query(_gpu("memory_used_bytes"), _EACH),
                Query(_gpu("memory_total_bytes"), f"{_EACH}: all"),
                Query(_gpu("memory_reserved_bytes"), f"{_EACH}: driver"),
            ),
            PanelUnit.BYTES,
        ),
    ),
)
_HEALTH = Section(
    "Health",
    (
        Panel(
            "Power",
            "Beside what the device may take.",
            (Query(_gpu("power_watts"), _EACH), Query(_gpu("power_limit_watts"), f"{_EACH}: limit")),
            PanelUnit.WATTS,
        ),
        Panel("Temperature", "Of the chip.", (Query(_gpu("temperature_celsius"), _EACH),), PanelUnit.CELSIUS),
        Panel(
            "Clocks",
            "Of processors and memory.",
            (Query(_gpu("sm_clock_hertz"), _EACH), Query(_gpu("memory_clock_hertz"), f"{_EACH}: memory")),
            PanelUnit.HERTZ,
        ),
        Panel(
            "Slowed",
            "1 while a device is slowed for this reason.",
            (Query(_gpu("slow"), f"{_EACH}: {{{{reason}}}}"),),
            shape=Shape.STATES,
            width=12,
            most=1,
        ),
        Panel(
            "Memory errors",
            "In the last hour. Uncorrected ones are a reason to exchange the device.",
            (Query(f"increase({_gpu('ecc_errors_total')}[1h])", f"{_EACH}: {{{{kind}}}}"),),
            width=12,
        ),
        Panel(
            "Readable",
            "1 while the driver tells the state of a device.",
            (Query(_gpu("readable"), _EACH),),
            shape=Shape.STATES,
            width=12,
            most=1,
        ),
        Panel(
            "Devices",
            "Names and drivers.",
            (Query(_gpu("info"), "{{gpu}}: {{name}}, {{uuid}}, driver {{driver}}"),),
            shape=Shape.NUMBERS,
            width=12,
        ),
    ),
)

GPUS = DashboardPage("tardigrade-gpus", "Tardigrade: GPUs", "What GPUs do, and how they are.", (_WORK, _HEALTH))
