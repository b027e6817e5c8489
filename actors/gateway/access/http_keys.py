"""The API key in the headers of an HTTP call."""

from __future__ import annotations

from collections.abc import Mapping

_BEARER = "bearer "
_OTHERS = (b"x-api-key", b"api-key")  # of Anthropic's and Azure's clients


def key_in(headers: Mapping[bytes, bytes]) -> str:
    """The key; "" without one. headers: by names in lower case."""
    given = headers.get(b"authorization", b"").decode("latin-1")
    if given[: len(_BEARER)].lower() == _BEARER:
        return given[len(_BEARER) :].strip()
    return next((headers[name].decode("latin-1").strip() for name in _OTHERS if name in headers), "")


def no_key_in(headers: Mapping[bytes, bytes]) -> str:
    """What came where `key_in` finds none, without the text itself: nothing, or a key alone, Basic, or a misspelt Bearer."""
    given = headers.get(b"authorization", b"").decode("latin-1").strip().lower()
    return "none" if given in ("", _BEARER.strip()) else "a value without Bearer"
