"""Links inside one host are quiet: ZeroMQ's own heartbeats would wake two I/O threads a second for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq

from messages.transport import zmq_options


@pytest.mark.parametrize(("endpoint", "every_ms"), [("ipc://{folder}/inbox", 0), ("tcp://127.0.0.1:9", 1_000)])
def test_only_links_to_other_hosts_ask_whether_the_peer_is_there(endpoint: str, every_ms: int, tmp_path: Path) -> None:
    with zmq.Context() as context, zmq_options.outgoing(context, endpoint.format(folder=tmp_path), b"") as link:
        assert link.get(zmq.HEARTBEAT_IVL) == every_ms


def test_clients_ask_whether_their_gateway_is_there() -> None:
    with zmq.Context() as context, zmq_options.client(context) as socket:
        assert (socket.get(zmq.HEARTBEAT_IVL), socket.get(zmq.HEARTBEAT_TIMEOUT)) == (1_000, 5_000)
