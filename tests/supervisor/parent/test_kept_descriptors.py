"""What the parent keeps for the next supervisor: one descriptor by name, however often it is given."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from supervisor.parent.kept_descriptors import KeptDescriptors
from supervisor.parent.link import PACKET_BYTES
from tests.support.waiting import DEADLINE_S

_KEEPS_ONE_HUNDRED = """
import os, socket
from supervisor.parent.parent import start_under_parent
link = start_under_parent()
parent = os.getppid()
def count():
    return len(os.listdir(f"/proc/{parent}/fd"))
def beat():
    link._beat_s = 0.0
    link.beat()
    assert link._socket.recv(4096).startswith(b"alive")  # the parent has taken everything that was sent before
beat()
before = count()
one, other = socket.socketpair()
for n in range(100):
    link.keep("spare:worker/0.0", f"[{n}, {{}}]", one.fileno())
beat()
print(count() - before, flush=True)
os._exit(0)
"""


def test_a_name_that_is_kept_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    kept, fds = KeptDescriptors(), [os.open(tmp_path, os.O_RDONLY) for _ in range(3)]
    kept.keep(b"spare:gateway/0 [1, {}]", fds[0])
    kept.keep(b"listener ", fds[1])
    kept.keep(b"spare:gateway/0 [2, {}]", fds[2])
    assert kept.by_text == {"listener ": fds[1], "spare:gateway/0 [2, {}]": fds[2]}
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept.send(one)
    texts = [socket.recv_fds(other, PACKET_BYTES, 1)[0] for _ in range(2)]
    assert texts == [b"keep listener ", b"keep spare:gateway/0 [2, {}]"]
    for fd in kept.fds:
        os.close(fd)


def test_the_parent_holds_one_descriptor_for_each_name() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _KEEPS_ONE_HUNDRED], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (ended.stdout, ended.stderr) == ("1\n", "")
