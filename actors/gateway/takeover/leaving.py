"""Leaves client connections to the next incarnation, at a moment at which it can go on with all of them.

The process goes on as before until it exits, and it exits as if it were killed: only the moment is chosen.
"""

from __future__ import annotations

import asyncio

from actors.gateway.custody.gateway_custody import GatewayCustody
from actors.gateway.http.server import HttpServer

_WAIT_S = 1.0  # for requests that are being read; then their connections are closed
_POLL_S = 0.005


async def leave_connections(server: HttpServer | None, custody: GatewayCustody | None) -> bool:
    """Give the custodian what it does not have yet. The process must exit soon, without closing its event loop.

    Returns False, and does nothing, where there is no custodian or no HTTP server.
    """
    if server is None or custody is None:
        return False
    await server.hand_over(_WAIT_S)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _WAIT_S
    while not custody.is_settled and loop.time() < end_s:
        await asyncio.sleep(_POLL_S)
    return True
