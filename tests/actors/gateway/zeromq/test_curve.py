"""ZeroMQ over TCP with CURVE: the right server key and the right API key are needed, and the Unix socket stays as it is."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from messages.access.api_key import Role, new_key
from messages.access.curve_keys import CurveKeys, curve_keys_in, read_curve_keys
from messages.access.key_file import change_keys
from messages.client import AsyncClient
from messages.errors import ConfigError, InvalidRequest, Unavailable
from tests.support.gateway.gateway_rig import Rig, rig

OPTIONS: dict[str, Any] = {"max_tokens": 4, "temperature": 0}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Place:
    """The addresses of a gateway, and its keys."""

    def __init__(self, folder: Path) -> None:
        self.key_file = folder / "zeromq-key.json"
        self.keys = curve_keys_in(self.key_file)
        self.ipc, self.tcp = f"ipc://{folder}/zeromq-0", f"tcp://127.0.0.1:{free_port()}"
        self.api_key, record = new_key("me", Role.USER, 1.0)
        change_keys(folder / "api-keys.json", lambda keys: [record])
        self.settings: dict[str, Any] = {
            "zeromq_endpoint": self.ipc,
            "zeromq_tcp_endpoint": self.tcp,
            "zeromq_key_file": str(self.key_file),
            "keys_file": str(folder / "api-keys.json"),
        }

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(self.tcp, **{"api_key": self.api_key, "server_key": self.keys.public, **options}) as client:
            yield client


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_both_keys_let_a_client_in(place: Place) -> None:
    async with rig(**place.settings), place.client() as client:
        assert len((await client.generate("hello", **OPTIONS)).tokens) == 4
        assert [len(piece.ids) > 0 async for piece in client.stream("hello", **OPTIONS)]


async def test_without_one_of_the_keys_nobody_comes_in(place: Place) -> None:
    stranger = zmq.curve_keypair()[0].decode()
    async with rig(**place.settings):
        for server_key in (None, stranger):
            async with place.client(server_key=server_key) as client:
                with pytest.raises(Unavailable, match=r"server_key"):
                    await client.models(deadline_s=0.5)
        for api_key in (None, "tg-000000000000-" + "x" * 43):
            async with place.client(api_key=api_key) as client:
                with pytest.raises(InvalidRequest, match=r"API key"):
                    await client.models()


async def test_the_unix_socket_is_not_encrypted_also_when_it_is_made_again(place: Place) -> None:
    async with rig(**place.settings) as r, AsyncClient(place.ipc, api_key=place.api_key) as client:
        assert len((await client.generate("hello", **OPTIONS)).tokens) == 4
        os.unlink(place.ipc.removeprefix("ipc://"))
        assert r.gateway.servers.zeromq is not None
        r.gateway.servers.zeromq._socket.poll()
        async with AsyncClient(place.ipc, api_key=place.api_key) as other:
            assert len((await other.generate("again", **OPTIONS)).tokens) == 4


async def test_the_next_incarnation_has_the_same_port_and_key(place: Place, tmp_path: Path) -> None:
    async with rig(**place.settings, journal_path=str(tmp_path / "journal")) as r, place.client() as client:
        first = await client.generate("hello", request="one", **OPTIONS)
        await r.kill_gateway()
        await r.start_gateway(2)
        again = await client.generate("hello", request="one", **OPTIONS)
        assert again.tokens == first.tokens


async def test_keys_that_cannot_be_read_leave_the_other_doors_open(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.key_file.chmod(0o622)
    async with rig(**place.settings) as r, AsyncClient(place.ipc, api_key=place.api_key) as client:
        assert await client.models() == ["hash-chain"]
        poll = socket_poll(r)
        poll()
        assert capsys.readouterr().out.count("no ZeroMQ over TCP until its keys can be read") == 1
        place.key_file.chmod(0o600)
        poll()
        async with place.client() as other:
            assert await other.models() == ["hash-chain"]


def socket_poll(r: Rig) -> Any:
    assert r.gateway.servers.zeromq is not None
    return r.gateway.servers.zeromq._socket.poll


def test_the_file_of_keys_is_private_and_made_once(tmp_path: Path) -> None:
    file = tmp_path / "state" / "zeromq-key.json"
    made = curve_keys_in(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert curve_keys_in(file) == made == read_curve_keys(file)
    assert made.secret not in repr(made)
    for content in ("", "{}", '{"version": 1, "public": "short", "secret": "short"}'):
        file.write_text(content)
        with pytest.raises(ConfigError, match=r"zeromq-key.json: expected the ZeroMQ keys"):
            read_curve_keys(file)
    file.unlink()
    with pytest.raises(ConfigError, match=r"got no file"):
        read_curve_keys(file)


@pytest.mark.parametrize(
    ("endpoint", "key"), [("tcp://127.0.0.1:1", "short"), ("tcp://127.0.0.1:1", "ä" * 40), ("ipc:///x", "a" * 40)]
)
def test_a_server_key_that_cannot_be_one_is_refused_at_once(endpoint: str, key: str) -> None:
    with pytest.raises(ConfigError, match=r"^server_key: expected"):
        AsyncClient(endpoint, server_key=key)


def test_a_pair_shows_no_secret() -> None:
    assert "s" * 40 not in str(CurveKeys(1, "p" * 40, "s" * 40))
