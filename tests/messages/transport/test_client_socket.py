"""The socket of a client outlives its gateway in the middle of a message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_READS_HALF_A_MESSAGE = """
import sys, zmq
from messages.transport import zmq_options

endpoint, own = "ipc://" + sys.argv[1], zmq.Context()
gateways = zmq.Context()
router = zmq_options.public_router(gateways, endpoint)
client = zmq_options.client(own)
monitor = client.get_monitor_socket(zmq.EVENT_DISCONNECTED)
client.connect(endpoint)
client.send(b"hello")
router.send_multipart([router.recv(), b"first", b"second"])
assert client.recv() == b"first"
gateways.destroy(linger=0)
assert monitor.poll(20_000)
client.get(zmq.EVENTS)  # libzmq learns here that the connection has gone
assert client.recv(zmq.DONTWAIT) == b"second"
client.close(linger=0)
"""


def test_a_gateway_that_dies_between_two_frames_does_not_end_its_client(tmp_path: Path) -> None:
    """In a process of its own, which libzmq may end otherwise."""
    done = subprocess.run([sys.executable, "-c", _READS_HALF_A_MESSAGE, str(tmp_path / "s")], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
