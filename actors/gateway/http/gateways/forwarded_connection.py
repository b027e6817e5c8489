"""A connection from another gateway, over which it forwards one call of a client."""

from __future__ import annotations

from typing import Any

from actors.gateway.http.connection import Connection
from actors.gateway.http.gateways.forwarded_call import LEAVE_METHOD


class ForwardedConnection(Connection):
    """Tells a client that has left, which its gateway says, from a gateway that has died and whose successor will ask again."""

    def on_headers_complete(self) -> None:
        parser: Any = self.parser
        if parser.get_method().decode() == LEAVE_METHOD:
            self._hangup.is_final = True
            self.transport.close()
            return
        self._hangup.is_final = False
        super().on_headers_complete()
