"""What the supervisor and its parent tell each other: descriptors that are kept, exit statuses, signs of life."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from supervisor.parent.link import ALIVE, KEEP, OPEN, PACKET_BYTES, Exits, ParentLink, pack_exits


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The parent's end and the supervisor's."""
    parent, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with parent, supervisor:
        yield parent, supervisor


def test_a_supervisor_gets_what_was_kept_and_every_exit_status(ends: tuple[socket.socket, socket.socket]) -> None:
    parent, supervisor = ends
    read, write = os.pipe()
    socket.send_fds(parent, [KEEP + b"run_dir /run/a b"], [read])
    socket.send_fds(parent, [KEEP + b"listen "], [write])
    parent.send(pack_exits({7: -9, 8: 3}))
    link = ParentLink(supervisor)
    assert {name: kept.value for name, kept in link.kept.items()} == {"run_dir": "/run/a b", "listen": ""}
    assert link.exits.code_by_pid == {7: -9, 8: 3}
    os.write(link.kept["listen"].fd, b"x")
    assert os.read(link.kept["run_dir"].fd, 1) == b"x"
    for fd in (read, write, *(kept.fd for kept in link.kept.values())):
        os.close(fd)


def test_later_exit_statuses_are_told_once(ends: tuple[socket.socket, socket.socket]) -> None:
    parent, supervisor = ends
    parent.send(pack_exits({}))
    link = ParentLink(supervisor)
    told: list[tuple[int, int]] = []
    link.exits.on_exit = lambda pid, code: told.append((pid, code))
    for packet in (pack_exits({5: 0}), pack_exits({6: -11})):
        parent.send(packet)
    link.read()
    link.read()  # nothing has come
    assert told == [(5, 0), (6, -11)]


def test_what_is_kept_goes_to_the_parent_with_its_descriptor(ends: tuple[socket.socket, socket.socket]) -> None:
    parent, supervisor = ends
    parent.send(pack_exits({}))
    link = ParentLink(supervisor)
    read, write = os.pipe()
    link.keep("lock", "/run/a b", write)
    packet, fds, _, _ = socket.recv_fds(parent, PACKET_BYTES, 1)
    assert packet == KEEP + b"lock /run/a b"
    os.write(fds[0], b"x")
    assert os.read(read, 1) == b"x"
    for fd in (read, write, *fds):
        os.close(fd)


def test_signs_of_life_are_few_and_never_wait(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, supervisor = ends
    parent.send(pack_exits({}))
    link, now_s = ParentLink(supervisor), [100.0]
    monkeypatch.setattr("supervisor.parent.link.time.monotonic", lambda: now_s[0])
    for step_s in (0.0, 0.25, 0.3):
        now_s[0] += step_s
        link.beat()
    parent.setblocking(False)
    assert [parent.recv(100), parent.recv(100)] == [OPEN, OPEN]
    with pytest.raises(BlockingIOError):
        parent.recv(100)
    for _ in range(10_000):  # a parent that is stopped reads nothing
        now_s[0] += 2.0
        link.beat()


@pytest.mark.parametrize("has_read", [True, False])
def test_the_death_of_the_parent_is_noticed_after_its_last_words(
    has_read: bool, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports a parent that had not read everything as a connection that was reset, once."""
    parent, supervisor = ends
    parent.send(pack_exits({}))
    link, told = ParentLink(supervisor), []
    monkeypatch.setattr(link, "close", lambda: told.append("closed"))
    link.exits.on_exit = lambda pid, code: told.append((pid, code))
    link.on_parent_death = lambda: told.append("dead")
    assert link.parent_pid == os.getpid(), "the process that has made the sockets"
    link.beat()
    if has_read:
        assert parent.recv(100) == OPEN
    link.read()
    assert (told, link.has_lost_parent) == ([], False)
    parent.send(pack_exits({5: 0}))
    parent.close()
    assert link.has_lost_parent
    link.read()
    assert told == [(5, 0), "closed", "dead"]
    assert link.parent_pid == 0


def test_without_a_parent_nothing_is_sent() -> None:
    link = ParentLink()
    link.keep("lock", "", 0)
    link.beat()
    assert not link.has_parent
    assert Exits().code_by_pid == {}


def test_a_parent_that_answers_no_sign_of_life_is_frozen(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, supervisor = ends
    parent.send(pack_exits({}))
    link, now_s, told = ParentLink(supervisor), [100.0], []
    link.on_parent_frozen = lambda: told.append(now_s[0])
    monkeypatch.setattr("supervisor.parent.link.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("supervisor.parent.link.sample_of", lambda pid: None)

    def beat(seconds: float, *, with_answers: bool) -> None:
        for _ in range(round(seconds * 10)):
            now_s[0] += 0.1
            link.beat()
            if with_answers:
                parent.send(ALIVE)
                link.read()

    beat(60.0, with_answers=True)
    beat(2.0, with_answers=False)
    now_s[0] += 10.0  # this process, or the whole machine, did not run
    beat(0.1, with_answers=True)
    assert told == []
    beat(5.0, with_answers=False)
    assert told
