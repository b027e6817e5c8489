"""The bytes of a request that a successor reads as if the client had just sent them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.gateway.custody.hold import Hold
from actors.gateway.custody.kept_request import KeptRequest, connection_of, read_request, request_bytes
from messages.descriptors.server import DescriptorServer
from messages.descriptors.table import DescriptorTable
from tests.support.custody.held_connections import Buffer, custody, tcp_pair, wait_kept
from tests.support.waiting import until

SCOPE = {
    "method": "POST",
    "raw_path": b"/v1/embeddings",
    "query_string": b"",
    "http_version": "1.1",
    "headers": [(b"host", b"here"), (b"authorization", b"Bearer k"), (b"expect", b"100-continue")],
}


def test_the_body_has_a_length_however_it_came() -> None:
    chunked = {**SCOPE, "headers": [*SCOPE["headers"], (b"transfer-encoding", b"chunked")], "query_string": b"a=1"}
    head = b"host: here\r\nauthorization: Bearer k\r\ncontent-length: 3\r\n\r\n"
    assert request_bytes(SCOPE, b"abc") == b"POST /v1/embeddings HTTP/1.1\r\n" + head + b"abc"
    assert request_bytes(chunked, bytearray(b"abc")) == b"POST /v1/embeddings?a=1 HTTP/1.1\r\n" + head + b"abc"


def test_bytes_outlive_the_descriptor_of_their_process() -> None:
    message = os.urandom(3 << 20)
    kept = KeptRequest.of("k", message)
    assert kept is not None
    duplicate = os.dup(kept.fd)
    kept.close()
    assert read_request(duplicate) == message
    os.close(duplicate)
    assert read_request(duplicate) == b""
    assert connection_of(kept.key) == "k"
    assert connection_of("k") is None


def test_without_memory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert KeptRequest.of("k", b"abc") is None


async def test_the_bytes_of_a_request_come_back_with_their_connection_until_its_answer_is_complete(tmp_path: Path) -> None:
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    dead = custody(tmp_path / "c")
    dead.open()
    ours, client = tcp_pair()
    hold = Hold(dead, "k", ours.fileno(), Buffer())
    kept, stray = KeptRequest.of("k", b"the request"), KeptRequest.of("gone", b"of a connection that has gone")
    assert kept is not None
    assert stray is not None
    hold.keep(kept)
    hold.begin("r", "/v1/embeddings", -1, "", is_alone=True, keeps_alive=True, n_tries=1)
    dead.put(stray)
    await wait_kept(server, 3)
    n_open = len(os.listdir("/proc/self/fd"))
    (left,) = await custody(tmp_path / "c").claim()
    assert left.key == "k"
    assert left.request_fd is not None
    assert read_request(left.request_fd) == b"the request"
    left.socket.close()
    os.close(left.request_fd)
    await until(lambda: len(os.listdir("/proc/self/fd")) == n_open)
    dead.drop(stray)
    hold.let_go()
    await wait_kept(server, 0)
    assert ours.send(b"the next answer"), "the connection stays open"
    hold.begin("r", "/v1/completions", -1, "", is_alone=True, keeps_alive=True)
    await wait_kept(server, 1)
    stray.close()
    dead.close()
    server.close()
    ours.close()
    client.close()
