"""The socket of a client outlives its gateway in the middle of a message, and with many messages unread."""

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

_READS_LATE = """
import sys, zmq
from zmq.utils.monitor import recv_monitor_message
from messages.transport import zmq_options

N_MESSAGES = 2_500  # of these the gateway takes at most 1,000 with it: the limit of its pipe, and 8 KiB about to be sent
endpoint, own = "ipc://" + sys.argv[1], zmq.Context()
client = zmq_options.client(own)
monitor = client.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
client.connect(endpoint)

def wait_for(event):
    while True:
        assert monitor.poll(20_000)
        if recv_monitor_message(monitor)["event"] == event:
            return

def gateway():
    context = zmq.Context()
    router = zmq_options.public_router(context, endpoint)
    wait_for(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    client.send(b"hello")
    return context, router, router.recv_multipart()[0]

context, router, identity = gateway()
for i in range(N_MESSAGES):
    router.send_multipart([identity, b"of the first"])
assert client.poll(20_000)
context.destroy(linger=0)
wait_for(zmq.EVENT_DISCONNECTED)
context, router, identity = gateway()
n_read = 0
while client.poll(0):  # libzmq hears of room in the pipe while it has the second connection
    n_read += client.recv() == b"of the first"
assert n_read > 1_000, n_read
router.send_multipart([identity, b"of the second"])
while client.recv() != b"of the second":
    pass
client.close(linger=0)
"""


def run(program: str, tmp_path: Path) -> None:
    """Run a program in a process of its own, which libzmq may end."""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "s")], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


def test_a_gateway_that_dies_between_two_frames_does_not_end_its_client(tmp_path: Path) -> None:
    run(_READS_HALF_A_MESSAGE, tmp_path)


def test_a_gateway_that_dies_while_its_client_is_far_behind_does_not_end_it(tmp_path: Path) -> None:
    run(_READS_LATE, tmp_path)
