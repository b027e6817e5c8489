"""HTTP clients that send several requests at once and leave at any moment, with or without an error on their side."""

from __future__ import annotations

import json
import random
import socket
import struct
import time

_ENDS_WITH_RESET = struct.pack("ii", 1, 0)  # SO_LINGER
_PAUSE_S = 0.01
_ANSWER_S = 30.0


def leave_early(chance: random.Random, address: tuple[str, int], n_clients: int) -> None:
    """So many clients, one after the other; the server may close their connections at any time."""
    for _ in range(n_clients):
        with socket.create_connection(address, timeout=_ANSWER_S) as client:
            try:
                for _ in range(chance.randrange(1, 6)):
                    _ask(chance, client)
                _leave(chance, client)
            except OSError:  # the server has closed it, or is slow
                pass


def _ask(chance: random.Random, client: socket.socket) -> None:
    """Send one request, or a part of it; perhaps wait for some of an answer."""
    request = _request(chance)
    is_whole = chance.random() < 0.85
    client.sendall(request if is_whole else request[: chance.randrange(len(request))])
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0.0, _PAUSE_S))
    if is_whole and chance.random() < 0.2:
        client.settimeout(_PAUSE_S)
        client.recv(chance.randrange(1, 4096))


def _request(chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    streamed = {"prompt": [chance.randrange(90)], "max_tokens": chance.choice((1, 5, 200)), "stream": chance.random() < 0.7}
    path, fields = chance.choice((("completions", streamed), ("generate", {"tokens": [3], "max_tokens": 2})))
    body = json.dumps(fields).encode()
    more = chance.choice((b"", b"connection: close\r\n", b"expect: 100-continue\r\n", b"idempotency-key: fuzz\r\n"))
    head = b"POST /v1/%s HTTP/%s\r\nhost: localhost\r\n" % (path.encode(), chance.choice((b"1.1", b"1.1", b"1.0")))
    return head + more + b"content-length: %d\r\n\r\n" % len(body) + body


def _leave(chance: random.Random, client: socket.socket) -> None:
    how = chance.random()
    if how < 0.3:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ENDS_WITH_RESET)
    elif how < 0.6:
        client.shutdown(socket.SHUT_WR)
    time.sleep(chance.uniform(0.0, _PAUSE_S))
