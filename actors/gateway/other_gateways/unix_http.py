"""HTTP/1.1 between the gateways of one server: each listens at a unix socket for the calls of the others."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path

LOST = (OSError, asyncio.IncompleteReadError, ValueError)  # what reading from a gateway raises when that gateway dies
_OF_THE_CONNECTION = (b"connection", b"transfer-encoding", b"date")


@dataclass(frozen=True)
class ResponseHead:
    """Status line and headers of a response. `length`: bytes of its body; -1: it is chunked."""

    status: int
    headers: list[tuple[bytes, bytes]]
    length: int


def get(target: str) -> bytes:
    """A GET without headers of its own."""
    return f"GET {target} HTTP/1.1\r\nhost: gateway\r\n\r\n".encode()


def post(target: str, body: bytes) -> bytes:
    """A POST of a JSON body."""
    return f"POST {target} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def listen_for_gateways(path: Path) -> int:
    """The descriptor of a new unix socket at `path`, where the other gateways of this server forward calls."""
    path.unlink(missing_ok=True)  # left by an earlier incarnation, which has ended
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener.detach()


async def read_head(reader: asyncio.StreamReader) -> ResponseHead:
    """The head of the response that comes next. Raises: one of `LOST`."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).rstrip(b"\r\n").split(b"\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    length = int(dict(headers).get(b"content-length", -1))
    status = int(first.split(b" ", 2)[1])
    kept = [(name, value) for name, value in headers if name not in _OF_THE_CONNECTION or (name == b"date" and length < 0)]
    return ResponseHead(status, kept, 0 if status == 204 else length)


async def read_chunk(reader: asyncio.StreamReader) -> bytes | None:
    """The next chunk of a chunked body; None at its end. Raises: one of `LOST`."""
    size = int(await reader.readuntil(b"\r\n"), 16)
    chunk = await reader.readexactly(size + 2)
    return chunk[:-2] if size else None
