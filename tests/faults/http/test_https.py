"""A real server with TLS: the programs that people use reach it, certificates are renewed under load, and streams whose gateway
is killed are read to their end."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.drill.session import DrillOptions, run_session
from tests.support.answers.client_libraries import openai
from tests.support.answers.resuming_reader import Reader
from tests.support.real_server import RealServer, real_server
from tests.support.tls.certificates import Authority, Signed

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.02", "--gateways", "2")
ASKED = '{"prompt": "hello", "max_tokens": 8, "temperature": 0}'
N_STREAMS = 8


class Place:
    """The files of a server with TLS, and the authority of its clients."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.clients = Authority(folder / "server"), Authority(folder / "clients")
        self.files = Signed(folder / "server.pem", folder / "server.key")
        self.authority.signed(serial=1).install(self.files)
        self.flags = ("--tls-cert", str(self.files.cert), "--tls-key", str(self.files.key))

    @contextmanager
    def server(self, *more: str) -> Iterator[RealServer]:
        with real_server(*FLAGS, *self.flags, *more) as server:
            assert server.url.startswith("https://127.0.0.1:")
            yield server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("tls"))


def curl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["curl", "-sS", *arguments], capture_output=True, text=True, timeout=DEADLINE_S)


def test_streams_are_read_on_after_every_gateway_was_killed(place: Place) -> None:
    with place.server() as server:
        assert "custodian" not in {child.name.partition("/")[0] for child in server.status().children}
        whole = curl("--cacert", str(place.authority.cert), f"{server.url}/v1/completions", "-d", ASKED)
        assert '"finish_reason":"length"' in whole.stdout
        assert curl(f"{server.url}/health").returncode == 60, "the authority is not one that everybody trusts"
        asyncio.run(_read_under_kills_and_renewals(place, server))
        server.wait_serving()
        _openai_client(place, server)
        _drill(place, server)


async def _read_under_kills_and_renewals(place: Place, server: RealServer) -> None:
    """Each reader goes on over new connections; the certificate is another one when the first gateway dies."""
    context = place.authority.trusting()
    async with (
        asyncio.timeout(DEADLINE_S),
        httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, verify=context) as http,
    ):
        readers = [Reader(http, f"key {n}") for n in range(N_STREAMS)]
        is_far = asyncio.Semaphore(0)
        reading = [asyncio.ensure_future(reader.read(is_far)) for reader in readers]
        for index in range(2):
            for _ in range(N_STREAMS // 2):
                await is_far.acquire()
            place.authority.signed(serial=10 + index).install(place.files)
            while await asyncio.to_thread(_serials, server, context) != {10 + index}:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(server.kill, f"gateway/{index}")
        bodies = await asyncio.gather(*reading)
    assert {_text(body) for body in bodies} == {_text(bodies[0])}
    assert max(reader.n_connections for reader in readers) > 1


def _text(body: bytes) -> bytes:
    """The text of a stream."""
    return b"".join(re.findall(rb'"text":"([^"]*)"', body))


def _serials(server: RealServer, context: ssl.SSLContext) -> set[int]:
    """The serial numbers that new connections see; which gateway takes one is chance."""

    found = set[int]()
    for _ in range(8):
        with (
            socket.create_connection(("127.0.0.1", server.port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
        ):
            shown = tls.getpeercert()
            assert shown is not None
            found.add(int(str(shown["serialNumber"]), 16))
    return found


def _openai_client(place: Place, server: RealServer) -> None:
    with (
        openai.DefaultHttpxClient(verify=place.authority.trusting()) as http,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=http) as client,
    ):
        answer = client.completions.create(model="hash-chain", prompt="hello", max_tokens=8, temperature=0, stream=True)
        assert len([event for event in answer if event.choices]) >= 8


def _drill(place: Place, server: RealServer) -> None:
    """The server's own tool reaches it too, and finds that streams go on when a worker dies."""
    options: dict[str, Any] = {
        "url": None, "port": None, "faults": ("kill:worker",), "rounds": 1, "streams": 2, "prompt_words": 4, "max_tokens": 200,
        "deadline_s": DEADLINE_S, "model": "", "api_key": "", "ignore_eos": True, "seed": 0, "json_path": None,
        "svg_path": None, "run_dir": server.run_dir, "tls_ca": place.authority.cert,
    }  # fmt: skip
    assert run_session(DrillOptions(**options)) == 0


def test_clients_show_certificates_to_a_server_that_asks_for_them(place: Place) -> None:
    with place.server("--tls-client-ca", str(place.clients.cert)) as server:
        own = place.clients.signed("alice")
        trusted = ("--cacert", str(place.authority.cert))
        shown = curl(*trusted, "--cert", str(own.cert), "--key", str(own.key), f"{server.url}/v1/completions", "-d", ASKED)
        assert '"finish_reason":"length"' in shown.stdout
        assert curl(*trusted, f"{server.url}/health").returncode != 0
        assert "--cert CLIENT.pem --key CLIENT.key" in server.log()
