"""HTTPS over real sockets: who completes a handshake, which certificate is shown, and what bad files and bad clients change."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.gateway.settings import GatewaySettings
from actors.gateway.tls import handshake
from actors.gateway.tls.certificates import Certificates, tls_context
from messages.errors import ConfigError
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.metric_values import metric_value
from tests.support.tls.certificates import Authority, Signed
from tests.support.waiting import DEADLINE_S

BODY: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Signed:
    """The files that the server reads; a test may replace them."""
    place = Signed(tmp_path / "server.pem", tmp_path / "server.key")
    authority.signed(serial=1).install(place)
    return place


def settings_of(files: Signed, **more: Any) -> dict[str, Any]:
    return {"tls_cert": str(files.cert), "tls_key": str(files.key), **more}


@asynccontextmanager
async def https(r: Rig, context: ssl.SSLContext) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{r.address[1]}", verify=context, timeout=DEADLINE_S) as client:
        yield client


async def serial_of(r: Rig, context: ssl.SSLContext) -> int:
    """The serial number of the certificate that the server shows to a new connection."""
    _, writer = await asyncio.open_connection(*r.address, ssl=context, server_hostname="127.0.0.1")
    shown = writer.get_extra_info("ssl_object").getpeercert()
    writer.close()
    return int(shown["serialNumber"], 16)


def refresh(r: Rig) -> None:
    """The look at the files that comes once a second."""
    assert r.gateway.servers.http is not None
    r.gateway.servers.http._check_connections()


def n_cut(r: Rig) -> float:
    return metric_value(r.gateway.metrics.cut.labels("tls"))


async def test_answers_and_streams_come_over_tls(authority: Authority, files: Signed) -> None:
    async with rig(with_socket=True, **settings_of(files)) as r, https(r, authority.trusting()) as client:
        plain = await client.post("/v1/completions", json=BODY)
        assert plain.status_code == 200
        streamed = await client.post("/v1/completions", json={**BODY, "stream": True, "max_tokens": 200})
        assert "data: [DONE]" in streamed.text
        large = {**BODY, "prompt": "x" * 300_000}
        assert (await client.post("/v1/completions", json=large)).status_code == 400, "a large body arrives whole"
        assert r.gateway.servers.http is not None
        assert r.gateway.servers.http.n_connections == 1, "the connection is kept"


async def test_pages_ask_for_leave_over_tls_as_elsewhere(authority: Authority, files: Signed) -> None:
    page = "https://chat.example.com"
    async with (
        rig(with_socket=True, **settings_of(files, allowed_origins=[page])) as r,
        https(r, authority.trusting()) as client,
    ):
        wanted = {"origin": page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        granted = await client.options("/v1/completions", headers=wanted)
        assert (granted.status_code, granted.headers["access-control-allow-origin"]) == (204, page)
        assert "access-control-allow-credentials" not in granted.headers
        own = f"https://127.0.0.1:{r.address[1]}"
        for origin, status in ((page, 200), (own, 200), ("https://evil.example", 403)):
            answer = await client.post("/v1/completions", json=BODY, headers={"origin": origin})
            assert answer.status_code == status, origin


async def test_what_is_no_handshake_is_cut_and_counted(authority: Authority, files: Signed) -> None:
    async with rig(with_socket=True, **settings_of(files)) as r:
        reader, writer = await asyncio.open_connection(*r.address)
        writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            assert b"HTTP" not in await reader.read()
        writer.close()
        stranger = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(*r.address, ssl=stranger, server_hostname="localhost")
        old = authority.trusting()
        with warnings.catch_warnings(action="ignore"):  # the version is deprecated
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError):  # noqa: PT011  any: this client's library may refuse as well
            await asyncio.open_connection(*r.address, ssl=old, server_hostname="localhost")
        await r.cluster.wait_until(lambda: n_cut(r) == 3)
        assert await serial_of(r, authority.trusting()) == 1


async def test_handshakes_have_a_deadline_and_a_bound(
    authority: Authority, files: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_MOST_HANDSHAKES", 2)
    async with rig(with_socket=True, **settings_of(files, head_s=0.2)) as r:
        silent = [await asyncio.open_connection(*r.address) for _ in range(3)]
        async with asyncio.timeout(DEADLINE_S):
            for reader, writer in silent:  # the third at once, the others after 0.2 s
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                writer.close()
        assert n_cut(r) == 3
        assert await serial_of(r, authority.trusting()) == 1


async def test_renewed_files_are_for_new_connections(authority: Authority, files: Signed) -> None:
    context = authority.trusting()
    async with rig(with_socket=True, **settings_of(files)) as r, https(r, context) as kept:
        assert (await kept.get("/health")).status_code == 200
        authority.signed(serial=2).install(files)
        assert await serial_of(r, context) == 1, "nobody has looked yet"
        refresh(r)
        assert await serial_of(r, context) == 2
        assert (await kept.get("/health")).status_code == 200
        assert r.gateway.servers.http is not None
        assert [type(one).__name__ for one in r.gateway.servers.http.connections].count("Connection") >= 1


async def test_bad_new_files_leave_the_old_ones_in_force(
    authority: Authority, files: Signed, capsys: pytest.CaptureFixture[str]
) -> None:
    context = authority.trusting()
    async with rig(with_socket=True, **settings_of(files)) as r:
        files.cert.write_text("no certificate")
        refresh(r)
        refresh(r)
        assert await serial_of(r, context) == 1
        assert capsys.readouterr().out.count("certificates not read, the old ones count") == 1
        authority.signed(serial=3).install(files)
        refresh(r)
        assert await serial_of(r, context) == 3


async def test_a_gateway_that_starts_with_bad_files_waits_until_they_are_mended(authority: Authority, files: Signed) -> None:
    files.key.unlink()
    async with rig(with_socket=True, **settings_of(files)) as r:
        with pytest.raises(OSError):  # noqa: PT011  a reset, or an end before the handshake
            await serial_of(r, authority.trusting())
        authority.signed(serial=4).install(files)
        refresh(r)
        assert await serial_of(r, authority.trusting()) == 4


async def test_with_a_client_authority_clients_show_a_certificate(authority: Authority, files: Signed, tmp_path: Path) -> None:
    clients, others = Authority(tmp_path / "clients"), Authority(tmp_path / "others")
    known, unknown = clients.signed("alice"), others.signed("mallory")
    async with rig(with_socket=True, **settings_of(files, tls_client_ca=str(clients.cert))) as r:
        async with https(r, authority.trusting(known)) as client:
            assert (await client.post("/v1/completions", json=BODY)).status_code == 200
        for own in (None, unknown):
            async with https(r, authority.trusting(own)) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get("/health")
        clients.cert.write_bytes(others.cert.read_bytes())
        refresh(r)
        async with https(r, authority.trusting(unknown)) as client:
            assert (await client.get("/health")).status_code == 200, "the new authority counts"
        async with https(r, authority.trusting(known)) as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/health")


async def test_the_end_of_a_gateway_waits_for_no_client(authority: Authority, files: Signed) -> None:
    async with rig(with_socket=True, **settings_of(files)) as r:
        idle = [socket.create_connection(r.address), socket.create_connection(r.address)]
        wrapped = await asyncio.to_thread(authority.trusting().wrap_socket, idle[0], server_hostname="localhost")
        assert r.gateway.servers.http is not None
        await r.cluster.wait_until(lambda: r.gateway.servers.http is not None and r.gateway.servers.http.n_connections == 1)
        await r.gateway.servers.http.stop()
        wrapped.close()
        idle[1].close()


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        ("tls_cert", "gateway.tls_cert: expected a file that can be read, got /nowhere"),
        ("tls_key", "gateway.tls_key: expected a file that can be read, got /nowhere"),
        ("tls_client_ca", "gateway.tls_client_ca: expected a file that can be read, got /nowhere"),
    ],
)
def test_errors_name_the_setting(files: Signed, spoilt: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        tls_context(GatewaySettings(**{**settings_of(files), spoilt: "/nowhere"}))


def test_errors_of_contents_name_the_setting(authority: Authority, files: Signed) -> None:
    other = authority.signed()
    with pytest.raises(ConfigError, match=r"gateway.tls_cert: .* the private key that belongs to it.*KEY_VALUES_MISMATCH"):
        tls_context(GatewaySettings(**settings_of(Signed(files.cert, other.key))))
    with pytest.raises(ConfigError, match=r"gateway.tls_client_ca: expected certificates in PEM"):
        tls_context(GatewaySettings(**settings_of(files, tls_client_ca=str(files.key))))
    locked = files.key.with_suffix(".locked")
    subprocess.run(
        ["openssl", "ec", "-in", str(files.key), "-aes128", "-passout", "pass:secret", "-out", str(locked)],
        check=True,
        capture_output=True,
    )
    with pytest.raises(ConfigError, match=r"gateway.tls_key: expected a key without a passphrase"):
        tls_context(GatewaySettings(**settings_of(Signed(files.cert, locked))))
    assert Certificates(GatewaySettings(**settings_of(Signed(files.cert, locked)))).context is None
