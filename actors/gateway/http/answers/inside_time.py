"""How long a call has been inside this gateway: from the last byte of its body, which was read then."""

from __future__ import annotations

from time import monotonic

from starlette.types import Scope

_READ_S = "tardigrade.read_s"  # key in the ASGI scope


def note_read(scope: Scope) -> None:
    """The body of this call has been read, and nothing of it looked at yet."""
    scope[_READ_S] = monotonic()


def inside_s(scope: Scope) -> float | None:
    """Seconds since `note_read`; None without that: the call has no body."""
    read_s = scope.get(_READ_S)
    return None if read_s is None else monotonic() - read_s
