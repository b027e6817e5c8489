"""The environment variables of OpenTelemetry, and what the configuration says instead."""

from __future__ import annotations

import pytest

from actors.gateway.settings import TracesSettings
from actors.gateway.tracing.export_settings import export_settings, is_wanted
from messages.errors import ConfigError

PLAIN = TracesSettings(folder="/nowhere")


@pytest.mark.parametrize(
    ("traces", "environment", "wanted"),
    [
        ("auto", {}, False),
        ("auto", {"OTEL_SERVICE_NAME": "llm"}, False),
        ("auto", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ("auto", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/x"}, True),
        ("auto", {"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ("auto", {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ("auto", {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ("off", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ("on", {}, True),
        ("on", {"OTEL_SDK_DISABLED": "TRUE"}, False),
    ],
)
def test_when_requests_are_traced(traces, environment: dict[str, str], wanted: bool) -> None:
    assert is_wanted(traces, environment) is wanted


@pytest.mark.parametrize(
    ("endpoint", "environment", "url"),
    [
        ("", {}, "http://localhost:4318/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c.example.com/otlp/"}, "https://c.example.com/otlp/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/as-it-is"}, "http://c/as-it-is"),
        ("http://own:1", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"}, "http://own:1/v1/traces"),
    ],
)
def test_where_spans_go(endpoint: str, environment: dict[str, str], url: str) -> None:
    assert export_settings(TracesSettings(folder="", endpoint=endpoint), environment).url == url


def test_all_variables_are_read() -> None:
    settings = export_settings(
        PLAIN,
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,x=y",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "500",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_BSP_MAX_QUEUE_SIZE": "7",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "3",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.name=other",
            "OTEL_SERVICE_NAME": "llm",
        },
    )
    assert settings.headers == {"api-key": "a b", "x": "y"}
    assert (settings.timeout_s, settings.delay_s) == (0.5, 0.2)
    assert (settings.protocol, settings.compression, settings.certificate) == ("http/protobuf", "gzip", "/ca.pem")
    assert (settings.most_waiting, settings.most_at_once) == (7, 3)
    assert settings.resource == {"deployment.environment.name": "test", "service.name": "llm"}


def test_the_configured_ratio_wins() -> None:
    environment = {"OTEL_TRACES_SAMPLER": "always_on"}
    sampler = export_settings(TracesSettings(folder="", sampling=0.0), environment).sampler
    assert (sampler.takes(b"t" * 16, None), sampler.follows_parent) == (False, True)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://c/x"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:99999"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector/a b"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "key=secret%0A"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a%20b=secret"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "ten"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{variable}: expected") as caught:
        export_settings(PLAIN, {variable: value})
    assert "secret" not in str(caught.value)
