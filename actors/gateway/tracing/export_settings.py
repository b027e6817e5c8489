"""Where spans go and how, from the configuration and the environment variables that OpenTelemetry defines. Pure.

The variables mean what the specification of OpenTelemetry says; times in them are milliseconds. Defaults differ where a server
needs it: spans leave after a second instead of five, and more of them may wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import unquote, urlsplit

from actors.gateway.settings import TracesSettings
from actors.gateway.tracing.sampler import Sampler, sampler_of
from messages.errors import ConfigError

Protocol = Literal["http/json", "http/protobuf"]
Compression = Literal["none", "gzip"]
_ENDPOINT, _ENDPOINT_OF_TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_DEFAULT_ENDPOINT, _PATH = "http://localhost:4318", "/v1/traces"
_SERVICE = "tardigrade"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True)
class ExportSettings:
    """How spans are exported. `resource`: what all of them have in common, by the names of OpenTelemetry."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    protocol: Protocol
    compression: Compression
    certificate: str  # file with certificates in PEM that a server may be signed by; "": those of the system
    delay_s: float  # spans wait for others for so long
    most_waiting: int  # spans that wait for the collector; more are dropped
    most_at_once: int  # spans in one call
    sampler: Sampler
    resource: Mapping[str, str]


def is_wanted(traces: Literal["auto", "on", "off"], environment: Mapping[str, str]) -> bool:
    """True if requests are traced. "auto": if the environment names a collector or the exporter otlp."""
    if traces == "off" or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if traces == "on":
        return True
    return exporter == "otlp" or (not exporter and bool(environment.get(_ENDPOINT_OF_TRACES) or environment.get(_ENDPOINT)))


def export_settings(settings: TracesSettings, environment: Mapping[str, str]) -> ExportSettings:
    """What the configuration says, and where it says nothing the environment. Raises: ConfigError naming the key."""
    url = _url(settings, environment)
    protocol = _of_traces(environment, "PROTOCOL") or "http/json"
    if protocol not in get_args(Protocol):
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL: expected {' or '.join(get_args(Protocol))}, got {protocol!r}")
    compression = _of_traces(environment, "COMPRESSION") or "none"
    if compression not in get_args(Compression):
        raise ConfigError(f"OTEL_EXPORTER_OTLP_COMPRESSION: expected {' or '.join(get_args(Compression))}, got {compression!r}")
    sampler, argument = environment.get("OTEL_TRACES_SAMPLER", ""), environment.get("OTEL_TRACES_SAMPLER_ARG", "")
    if settings.sampling is not None:
        sampler, argument = "parentbased_traceidratio", str(settings.sampling)
    return ExportSettings(
        url=url,
        headers=_headers(environment),
        timeout_s=_milliseconds(environment, "OTEL_EXPORTER_OTLP_TIMEOUT", 10_000, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"),
        protocol=protocol,  # pyright: ignore[reportArgumentType]
        compression=compression,  # pyright: ignore[reportArgumentType]
        certificate=_of_traces(environment, "CERTIFICATE"),
        delay_s=_milliseconds(environment, "OTEL_BSP_SCHEDULE_DELAY", 1_000),
        most_waiting=_count(environment, "OTEL_BSP_MAX_QUEUE_SIZE", 65_536),
        most_at_once=_count(environment, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 2_048),
        sampler=sampler_of(sampler or "parentbased_always_on", argument),
        resource=_resource(environment),
    )


def _url(settings: TracesSettings, environment: Mapping[str, str]) -> str:
    base = settings.endpoint or environment.get(_ENDPOINT, "") or _DEFAULT_ENDPOINT
    of_traces = "" if settings.endpoint else environment.get(_ENDPOINT_OF_TRACES, "")
    url = of_traces or base.rstrip("/") + _PATH
    if not _is_address(url):
        name = "observability.traces_endpoint" if settings.endpoint else _ENDPOINT_OF_TRACES if of_traces else _ENDPOINT
        raise ConfigError(f"{name}: expected http://host:port or https://host:port, got {of_traces or base!r}")
    return url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0  # raises ValueError beyond 65,535
    except ValueError:
        return False
    is_sendable = url.isascii() and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port and is_sendable


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    variable = "OTEL_EXPORTER_OTLP_HEADERS"
    headers = _pairs(variable, _of_traces(environment, "HEADERS"))
    if not all(_HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable() for name, value in headers.items()):
        raise ConfigError(f"{variable}: expected names and values that a header of HTTP can have")  # the value may be a secret
    return headers


def _of_traces(environment: Mapping[str, str], what: str) -> str:
    """The variable for traces alone, or else the one for everything."""
    return (environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{what}") or environment.get(f"OTEL_EXPORTER_OTLP_{what}", "")).strip()


def _resource(environment: Mapping[str, str]) -> dict[str, str]:
    given = _pairs("OTEL_RESOURCE_ATTRIBUTES", environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    name = environment.get("OTEL_SERVICE_NAME", "") or given.get("service.name", "") or _SERVICE
    return {**given, "service.name": name}


def _pairs(variable: str, text: str) -> dict[str, str]:
    """The pairs of `a=1,b=2`, whose values are written as in an address."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals or not name.strip() for name, equals, _ in pairs):
        raise ConfigError(f"{variable}: expected name=value, separated by commas")  # the value may be a secret
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def _count(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"{variable}: expected a whole number from 1 on, got {text!r}")
    return int(text)


def _milliseconds(environment: Mapping[str, str], variable: str, default: int, special: str = "") -> float:
    """Seconds. `special`: a variable that wins over the other one."""
    chosen = special if special and environment.get(special) else variable
    return _count(environment, chosen, default) / 1e3
