"""The bytes of an HTTP request whose answer is a function of them alone, in memory that outlives this process.

They lie in a file without a name (memfd_create), whose descriptor the custodian holds beside that of the connection. The
successor of a killed gateway reads them as if the client had just sent them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from actors.gateway.custody.held import Held

_SUFFIX = "/request"  # of a key: these bytes, not the connection
_MADE_AGAIN = frozenset((b"content-length", b"transfer-encoding", b"expect"))  # headers that say how the body came


class KeptRequest(Held):
    """The descriptor of a request's bytes, for the custodian. It belongs to this object until `close`."""

    def __init__(self, connection_key: str, fd: int) -> None:
        self.key, self.fd = connection_key + _SUFFIX, fd

    @property
    def meta(self) -> bytes:
        return b""  # the key says everything

    @classmethod
    def of(cls, connection_key: str, http_request: bytes) -> KeptRequest | None:
        """Keep these bytes; None where there is no memory or no descriptor for them."""
        fd = -1
        try:
            fd = os.memfd_create("request", os.MFD_CLOEXEC)
            rest = memoryview(http_request)
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            if fd >= 0:
                os.close(fd)
            return None
        return cls(connection_key, fd)

    def close(self) -> None:
        """Close the descriptor. What the custodian holds stays until it is dropped."""
        os.close(self.fd)


def connection_of(key: str) -> str | None:
    """The key of the connection to which these bytes of a request belong; None for the key of a connection."""
    return key.removesuffix(_SUFFIX) if key.endswith(_SUFFIX) else None


def read_request(fd: int) -> bytes:
    """The bytes of a kept request; b"" if they cannot be read."""
    with suppress(OSError):
        size, parts, n = os.fstat(fd).st_size, list[bytes](), 0
        while n < size and (part := os.pread(fd, size - n, n)):
            parts.append(part)
            n += len(part)
        return b"".join(parts)
    return b""


def request_bytes(scope: Mapping[str, Any], body: bytes | bytearray) -> bytes:
    """The HTTP request of an ASGI call, with its whole `body` after the head."""
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    kept = b"".join(b"%s: %s\r\n" % (name, value) for name, value in headers if name.lower() not in _MADE_AGAIN)
    start = b"%s %s HTTP/%s\r\n" % (scope["method"].encode(), target, scope["http_version"].encode())
    return b"%s%scontent-length: %d\r\n\r\n%s" % (start, kept, len(body), body)
