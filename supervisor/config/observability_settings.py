"""The section of the configuration about what is told to tools of operators. Frozen; every field has a default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from actors.gateway.settings import TracesSettings
from messages.errors import ConfigError


class ObservabilitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Traces of requests, for OpenTelemetry."""

    # on, off, or auto: on if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER=otlp is in the environment
    traces: Literal["auto", "on", "off"] = "auto"
    traces_endpoint: str = ""  # of a collector, "http://host:4318"; empty: OTEL_EXPORTER_OTLP_ENDPOINT, or this machine
    # the part of requests that are traced, if their client has not decided it; not set: OTEL_TRACES_SAMPLER, or all
    traces_sampling: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None


def traces_of(settings: ObservabilitySettings, environment: Mapping[str, str], run_dir: Path) -> TracesSettings | None:
    """What gateways must know; None: nothing is traced."""
    if settings.traces == "off" or (settings.traces == "auto" and not any(name.startswith("OTEL_") for name in environment)):
        return None
    from actors.gateway.tracing.export_settings import is_wanted

    if not is_wanted(settings.traces, environment):
        return None
    return TracesSettings(folder=str(run_dir / "traces"), endpoint=settings.traces_endpoint, sampling=settings.traces_sampling)


def observability_errors(settings: ObservabilitySettings, environment: Mapping[str, str]) -> Iterator[str]:
    """The error of these keys, or of the variables of OpenTelemetry, where traces are on."""
    traces = traces_of(settings, environment, Path())
    if traces is None:
        return
    from actors.gateway.tracing.export_settings import export_settings

    try:
        export_settings(traces, environment)
    except ConfigError as error:
        yield str(error)
