"""How a child reports the error that ends it."""

from __future__ import annotations

import pytest

from messages.child import error_line
from messages.errors import ConfigError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("port: expected a number, got x"), "port: expected a number, got x"),
        (RuntimeError("\n  first\nsecond"), "RuntimeError: first"),
        (KeyError(), "KeyError"),
        (ConfigError(), "ConfigError"),
        (RuntimeError("x" * 10_000), "RuntimeError: " + "x" * 3_986),
    ],
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    assert error_line(error) == line
