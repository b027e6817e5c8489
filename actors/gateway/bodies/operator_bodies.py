"""Bodies of the operator's calls that concern the whole server. An unknown field is refused: it would change what is meant."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)]
_Replica = Annotated[int, msgspec.Meta(ge=0, le=9999)]
_DEADLINE_S = 60.0


class DrainBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/drain."""

    deadline_s: _Seconds = _DEADLINE_S  # for what is in progress; new requests stay refused after it


class ServeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/serve: no field."""


class CordonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/cordon."""

    replica: _Replica
    drain: bool = False  # what waits there leaves it at once, what runs there at the deadline
    deadline_s: _Seconds = _DEADLINE_S


class UncordonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/uncordon."""

    replica: _Replica
