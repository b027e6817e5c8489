"""A next supervisor that the present one has made is given to the parent at once, and waits there as the parent's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from supervisor.children.fork_link import ForkLink
from supervisor.children.fork_server import launch_early, launch_early_whole
from supervisor.parent.link import FRESH, KEEP, NEXT, OPEN, PACKET_BYTES, SPARE, ParentLink, Successor, pack_exits
from supervisor.parent.next_supervisor import NextSupervisor

DEADLINE_S = 60.0


class Waiting:
    """A process that ends with its link, as a next supervisor does. `end`: the parent's end of the link."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-c", f"import socket; socket.socket(fileno={theirs.fileno()}).recv(1)"]
            self.process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),))
        self.pid, self.end = self.process.pid, self._ours.detach()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The parent's end and the supervisor's."""
    parent, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with parent, supervisor:
        yield parent, supervisor


def test_a_supervisor_that_follows_another_one_gives_a_spare_at_its_second_beat(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    parent, supervisor = ends
    with open(os.devnull) as file:
        socket.send_fds(parent, [KEEP + b"lock /run/a"], [file.fileno()])
    parent.send(pack_exits({}))
    link, made = ParentLink(supervisor), socket.socketpair()
    answers = [None, Successor(7, made[0])]
    link.make_spare = lambda: answers.pop(0)  # it cannot be made yet, then it is, and no other one is made
    for _ in range(4):
        link.beat()
    assert parent.recv(PACKET_BYTES) == OPEN
    packet, fds, _, _ = socket.recv_fds(parent, PACKET_BYTES, 1)
    assert packet == SPARE + b"7"
    os.close(fds[0])
    assert made[1].recv(1) == b"", "nobody else has the other end"
    made[1].close()
    os.close(link.kept["lock"].fd)


def test_deaths_of_those_that_wait_are_forgotten_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, following = [100.0], NextSupervisor()
    monkeypatch.setattr("supervisor.parent.next_supervisor.time.monotonic", lambda: now_s[0])
    for _ in range(3):
        assert following.look()
        following.died()
    assert not following.look()
    spare = Waiting()  # that the supervisor has made already
    following.take_given(SPARE + str(spare.pid).encode(), spare.end)
    assert following.pid == spare.pid
    spare.process.kill()
    spare.process.wait(DEADLINE_S)
    assert not following.look()
    now_s[0] += 61.0
    assert following.look()
    following.close()


@pytest.mark.parametrize("is_first", [True, False])
def test_the_first_supervisor_and_one_that_has_asked_for_another_one_give_none(
    is_first: bool, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, supervisor = ends
    if not is_first:
        with open(os.devnull) as file:
            socket.send_fds(parent, [KEEP + b"lock /run/a"], [file.fileno()])
    parent.send(pack_exits({}))
    now_s = [100.0]
    monkeypatch.setattr("supervisor.parent.link.time.monotonic", lambda: now_s[0])
    link = ParentLink(supervisor)
    link.make_spare = lambda: pytest.fail("expected no spare")
    link.wants_next = True
    for _ in range(3):
        now_s[0] += 3.0
        link.beat()
    parent.settimeout(DEADLINE_S)
    assert [parent.recv(100) for _ in range(6)] == [OPEN, NEXT] * 3
    for kept in link.kept.values():
        os.close(kept.fd)


def test_a_spare_waits_if_nobody_else_does_and_a_fresh_one_replaces_it() -> None:
    following, first, second, fresh = NextSupervisor(), Waiting(), Waiting(), Waiting()
    following.take_given(SPARE + str(first.pid).encode(), first.end)
    following.take_given(SPARE + str(second.pid).encode(), second.end)
    assert second.process.wait(DEADLINE_S) == 0, "its link is closed"
    assert (following.pid, following.look()) == (first.pid, False)
    following.take_given(FRESH + str(fresh.pid).encode(), fresh.end)
    assert first.process.wait(DEADLINE_S) == -signal.SIGKILL
    taken = following.take()
    assert taken is not None
    assert taken[0] == fresh.pid
    taken[1].close()
    assert fresh.process.wait(DEADLINE_S) == 0
    following.close()


def test_one_whose_end_another_process_has_reaped_is_missing() -> None:
    following, spare = NextSupervisor(), Waiting()
    following.take_given(SPARE + str(spare.pid).encode(), spare.end)
    spare.process.kill()
    spare.process.wait(DEADLINE_S)
    assert following.take() is None
    assert following.look()
    following.close()


@pytest.mark.parametrize("has_program", [True, False])
def test_only_a_fork_server_with_the_program_makes_spares(has_program: bool) -> None:
    (launch_early_whole if has_program else launch_early)()
    forks = ForkLink()
    while not forks.is_warm:
        assert forks.pid, "it has ended"
    spare = forks.fork_prepared_supervisor()
    assert (spare is not None) is has_program
    if spare is not None:
        spare.end.close()
    forks.close()
