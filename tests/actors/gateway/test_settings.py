"""The gateway's section of the configuration: defaults serve, and an error names the key."""

from __future__ import annotations

import pytest

from actors.gateway.settings import GatewaySettings, read_settings
from messages.errors import ConfigError


def test_an_empty_section_is_the_defaults() -> None:
    assert read_settings(b"{}") == GatewaySettings()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"retentions": 1}', "unknown field `retentions`"),
        (b'{"retention_s": "long"}', r"Expected `float`, got `str` - at `\$\.retention_s`"),
        (b'{"max_n": 0}', r">= 1 - at `\$\.max_n`"),
        (b'{"request_timeout_s": 0}', r"> 0.0 - at `\$\.request_timeout_s`"),
        (b'{"stream_window_tokens": 255}', r">= 256 - at `\$\.stream_window_tokens`"),
        (b"no json", "malformed"),
    ],
)
def test_what_cannot_be_used_is_named(raw: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^gateway: .*{message}"):
        read_settings(raw)
