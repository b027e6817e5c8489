"""A web page's requests over a real socket: refused in any method, or answered with the headers that the browser asks for."""

from __future__ import annotations

import pytest

from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.http_connections import BODY, connected

pytestmark = pytest.mark.slow

PAGE = b"https://chat.example.com"
ORIGINS = [PAGE.decode()]
METHODS = [b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"]


def head(method: bytes, path: bytes, **headers: bytes) -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"content-length: %d" % (len(BODY) if method == b"POST" else 0)]
    lines += [name.replace("_", "-").encode() + b": " + value for name, value in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (BODY if method == b"POST" else b"")


@pytest.mark.parametrize("method", METHODS)
async def test_a_rebound_name_is_refused_in_every_method(method: bytes) -> None:
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write(head(method, b"/v1/generate" if method == b"POST" else b"/v1/models", host=b"evil.com"))
        first = await raw.reader.readuntil(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 403 ")
        assert b"access-control" not in first.lower()
        assert r.manager.metrics.refused is not None
        assert not r.manager.gate.n_active


@pytest.mark.parametrize("path", [b"/v1/generate", b"/v1/completions", b"/nothing"])
async def test_the_page_of_a_foreign_origin_is_refused_before_its_body_is_read(path: bytes) -> None:
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write(head(b"POST", path, host=b"localhost", origin=b"https://evil.com"))
        status, headers, answer = await raw.answer()
        assert (status, answer["error"]["code"], headers[b"connection"]) == (403, "origin_not_allowed", b"close")
        assert "gateway.allowed_origins" in answer["error"]["message"]
        assert await raw.is_closed()


async def test_without_a_setting_no_answer_has_headers_of_cors() -> None:
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write(head(b"POST", b"/v1/generate", host=b"localhost"))
        status, headers, _ = await raw.answer()
        assert status == 200
        assert not [name for name in headers if name.startswith(b"access-control")]


async def test_an_allowed_page_asks_first_and_then_reads() -> None:
    async with rig(with_socket=True, allowed_origins=ORIGINS) as r, connected(r) as (raw,):
        wanted = {"host": b"localhost", "origin": PAGE}
        asks = {"access_control_request_method": b"POST", "access_control_request_headers": b"authorization,content-type"}
        raw.writer.write(head(b"OPTIONS", b"/v1/generate", **wanted, **asks))
        allowed = (await raw.reader.readuntil(b"\r\n\r\n")).lower()
        assert allowed.startswith(b"http/1.1 204 ")
        assert b"access-control-allow-origin: " + PAGE in allowed
        assert b"access-control-allow-headers: authorization,content-type" in allowed
        raw.writer.write(head(b"POST", b"/v1/generate", **wanted))
        status, headers, _ = await raw.answer()
        assert (status, headers[b"access-control-allow-origin"], headers[b"vary"]) == (200, PAGE, b"origin")
        raw.writer.write(head(b"POST", b"/v1/generate", host=b"localhost"))
        assert b"access-control-allow-origin" not in (await raw.answer())[1], "the next request is nobody's page"


@pytest.mark.parametrize("origin", [b"", PAGE])
async def test_the_headers_of_a_stream(origin: bytes) -> None:
    async with rig(with_socket=True, allowed_origins=ORIGINS) as r, connected(r) as (raw,):
        body = b'{"prompt":[1],"max_tokens":2,"stream":true}'
        lines = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n" % len(body)
        raw.writer.write(lines + (b"origin: " + origin + b"\r\n" if origin else b"") + b"\r\n" + body)
        first = await raw.reader.readuntil(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 200 ")
        assert (b"access-control-allow-origin: " + PAGE in first) == bool(origin)
