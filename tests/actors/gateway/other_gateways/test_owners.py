"""Which gateway owns a request is a function of its id."""

from __future__ import annotations

from actors.gateway.other_gateways.owners import Owners


def test_an_id_has_the_same_owner_everywhere_and_minted_ids_belong_to_their_gateway() -> None:
    sockets = [str(index) for index in range(4)]
    gateways = [Owners(index, sockets) for index in range(4)]
    for number in range(50):
        owners = {gateway.socket_of(f"id {number}") or str(index) for index, gateway in enumerate(gateways)}
        assert len(owners) == 1
    for index, gateway in enumerate(gateways):
        minted = gateway.mint("cmpl-")
        assert [other.socket_of(minted) for other in gateways] == ["" if i == index else str(index) for i in range(4)]
    assert Owners(0, []).socket_of("any") == ""
