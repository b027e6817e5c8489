"""A connection that is left to the next incarnation: nothing is read behind the answer that is under way."""

from __future__ import annotations

from actors.gateway.custody.held import Held
from actors.gateway.custody.hold import Custodian, HeldResponse, Hold
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.http_connections import BODY, HEAD, connected, until_connected
from tests.support.waiting import until


class Noting(Custodian):
    """Notes what it is given."""

    def __init__(self) -> None:
        self.responses: list[HeldResponse] = []
        self.n_told = 0  # of them, when it was told at once

    def put(self, hold: Held) -> None:
        assert isinstance(hold, Hold)
        assert hold.response is not None
        self.responses.append(hold.response)

    def tell(self) -> None:
        self.n_told = len(self.responses)

    def drop(self, hold: Held) -> None:
        pass


async def test_an_answer_that_ends_here_leaves_the_next_request_to_the_successor() -> None:
    """A request that this process reads in its last moments would be noted nowhere, and its client would get no answer."""
    async with rig(with_scheduler=False, with_socket=True) as r, connected(r) as [client]:
        scheduler = await r.add_scheduler(is_automatic=False)
        await until_connected(r, 1)
        assert r.gateway.servers.http is not None
        [connection] = r.gateway.servers.http.connections
        connection._custodian = custodian = Noting()
        client.writer.write(HEAD + BODY)
        await until(lambda: len(scheduler.running) == 1 and bool(custodian.responses))
        assert connection.hand_over(), "the successor can go on with this answer"
        client.writer.write(HEAD + BODY)
        await client.writer.drain()
        scheduler.step(2)
        status, _, body = await client.answer()
        assert (status, body["tokens"]) == (200, oracle([3], 2))
        await until(lambda: connection._is_given)
        assert [bool(one.request) for one in custodian.responses] == [True, False]
        assert custodian.responses[-1].read_bytes == len(HEAD + BODY), "the next request waits in the kernel"
        assert custodian.n_told == 2, "this process may end before its next turn"
        assert not scheduler.running
        assert connection.hand_over()
