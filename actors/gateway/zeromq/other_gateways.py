"""The other gateways of this server: which of them has a request that a client asks for here, and links to them."""

from __future__ import annotations

from actors.gateway.other_gateways.owners import Owners
from actors.gateway.other_gateways.questions import who_knows
from actors.gateway.zeromq.forwarded_stream import ForwardedStream
from messages.client.link import ClientLink


class OtherGateways:
    """Links to other gateways, each made when the first stream needs it."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._links: dict[str, ClientLink] = {}  # by endpoint

    @property
    def are_there(self) -> bool:
        """True if this gateway is not the only one."""
        return bool(self._owners.other_sockets)

    async def link_to_owner(self, request_id: str) -> ClientLink | None:
        """A link to the gateway that knows this id; None if no other one does. Raises: Refusal if one does not answer."""
        socket = await who_knows(self._owners.other_sockets, request_id)
        return self._link(self._owners.zeromq_endpoint_beside(socket)) if socket else None

    async def close(self) -> None:
        """Close all links."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    def _link(self, endpoint: str) -> ClientLink:
        link = self._links.get(endpoint)
        if link is None:
            link = self._links[endpoint] = ClientLink(endpoint, lambda: _confirm_all(link))
        return link


def _confirm_all(link: ClientLink | None) -> None:
    """Answer the gateway at the other end, which asks whether its clients are there."""
    for call in link.open_calls.values() if link is not None else ():
        if isinstance(call, ForwardedStream):
            call.confirm()
