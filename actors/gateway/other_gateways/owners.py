"""Which gateway owns a request: a pure function of its id, so one id means one generation at all of them. Pure.

All gateways accept connections of the same port, and a client that comes back reaches any of them. A gateway mints ids that it
owns itself; only ids that clients give may belong to another one. A server that starts with another number of gateways has
other owners; each gateway keeps the requests of its journal, and those of the journals that it adopts (`unclaimed_folders`).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from messages.ids import mint_request_id
from messages.run_dir import zeromq_endpoint


class Owners:
    """The owners of request ids, as one gateway sees them."""

    def __init__(self, own: int, sockets: Sequence[str], *, have_changed: bool = False) -> None:
        """`own`: the index of this gateway. `sockets`: where the gateways listen for each other; empty if there is only one.
        `have_changed`: there was another number of gateways not long ago.
        """
        self._own, self._sockets = own, sockets
        self.have_changed = have_changed and bool(sockets)

    @property
    def own_socket(self) -> str:
        """Where this gateway listens for the others; "" if there are none."""
        return self._sockets[self._own] if self._sockets else ""

    def socket_of(self, request_id: str) -> str:
        """The socket of another gateway that owns this id; "" if this gateway owns it, or nobody has named it yet ("")."""
        n = len(self._sockets)
        owner = self._own if n < 2 or not request_id else _owner_of(request_id, n)
        return "" if owner == self._own else self._sockets[owner]

    @property
    def other_sockets(self) -> list[str]:
        """The sockets of all other gateways."""
        return [socket for index, socket in enumerate(self._sockets) if index != self._own]

    def zeromq_endpoint_beside(self, socket: str) -> str:
        """The endpoint for ZeroMQ clients of the gateway that listens for the others at `socket`."""
        return zeromq_endpoint(Path(socket).parent, self._sockets.index(socket))

    def mint(self, prefix: str) -> str:
        """A new id that this gateway owns."""
        while True:
            request_id = prefix + mint_request_id()[4:]
            if not self.socket_of(request_id):
                return request_id


def _owner_of(request_id: str, n_gateways: int) -> int:
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest(), "little") % n_gateways
