"""An inbox that cannot be made, because the disk of the run directory is full, keeps no process from ending."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import zmq

from messages.transport import zmq_options

DEADLINE_S = 60.0


def test_a_socket_that_cannot_be_bound_is_closed(tmp_path: Path) -> None:
    context = zmq.Context()
    for make in (zmq_options.inbox, zmq_options.public_router):
        with pytest.raises(zmq.ZMQError) as kept:
            make(context, f"ipc://{tmp_path}/no/such/directory")
        assert kept.value.errno  # its traceback holds the socket, as that of an actor's error does
    end = threading.Thread(target=context.term, daemon=True)  # with an open socket it would wait for ever
    end.start()
    end.join(DEADLINE_S)
    assert not end.is_alive()
