"""The custodian's section of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec


class CustodianSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of the custodian."""

    # client connections held at a time; fewer where the system allows fewer files
    max_sockets: Annotated[int, msgspec.Meta(ge=1)] = 65_536
    # for how long the connections of a dead gateway are held
    abandoned_s: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)] = 120.0
    socket_path: str = ""  # where gateways find it; the supervisor sets it
