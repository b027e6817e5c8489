"""Mutated HTTP requests for a real server, from a seed; and what of a process may not grow meanwhile."""

from __future__ import annotations

import os
import random
import re
import select
import socket
import time
from collections import Counter
from pathlib import Path

_ANSWER_S = 60.0
_PATHS = (b"/v1/completions", b"/v1/generate", b"/v1/batch", b"/v1/chat/completions", b"/tokenize", b"/detokenize", b"/nothing")
_REQUESTS = (
    (b"/v1/completions", b'{"prompt":"Hi","max_tokens":2}'),
    (b"/v1/generate", b'{"tokens":[3,4],"max_tokens":2,"temperature":0,"stop":["a"],"seed":1}'),
    (b"/v1/batch", b'{"tokens":[[1],[2,3]],"max_tokens":1}'),
    (
        b"/v1/chat/completions",
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"max_tokens":1,"stream":true}',
    ),
    (b"/v1/completions", b'{"prompt":[1,2],"n":2,"max_tokens":1,"logprobs":1,"top_p":0.5,"metadata":{"a":[{}]}}'),
    (b"/tokenize", b'{"prompt":"Hi"}'),
    (b"/detokenize", b'{"tokens":[1,2]}'),
)
_HEAD = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n"
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_TOKENS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b"null",
    b"-1",
    b"1e999",
    b"9" * 40,
    b"\xff",
    b"\r\n",
    b"\0",
    b":",
    b"\\u0000",
)


def mutated(chance: random.Random, raw: bytes, most: int = 4) -> bytes:
    """`raw` with up to `most` changes: bits flipped, parts cut, repeated or replaced."""
    data = bytearray(raw)
    for _ in range(chance.randrange(most + 1)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.randrange(20)]
            case 2:
                data[at:at] = chance.choice(_TOKENS)
            case 3:
                data[at:at] = data[at : at + chance.randrange(40)] * chance.randrange(1, 4)
            case _:
                data[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(data)


def mutated_once(chance: random.Random, raw: bytes) -> bytes:
    """`raw` with at least one change."""
    data = raw
    while data == raw:
        data = mutated(chance, raw, 3)
    return data


def http_request(chance: random.Random) -> bytes:
    """One request, of which something is wrong more often than not."""
    body = mutated(chance, chance.choice(_REQUESTS)[1], 3)
    length = len(body) if chance.random() < 0.95 else chance.choice((0, len(body) + 1, -1, 10**30))
    head = _HEAD % (chance.choice(_PATHS), length)
    if chance.random() < 0.2:
        head = mutated(chance, head, 3)
    if chance.random() < 0.05:
        head += b"x-fuzz: " + b"a" * chance.randrange(40_000) + b"\r\n"
    return head + b"\r\n" + body


def _body_request(chance: random.Random, damage: bool, is_last: bool) -> bytes:
    """A request whose head is right. The server closes the connection after the last one."""
    path, body = chance.choice(_REQUESTS)
    if damage:
        body = mutated_once(chance, body)
    close = b"connection: close\r\n" if is_last else b""
    return _HEAD % (path, len(body)) + close + b"\r\n" + body


def fuzz_http(chance: random.Random, address: tuple[str, int], n_requests: int) -> Counter[int]:
    """Send so many requests and count the statuses of the answers. On two of three connections the heads are right, most
    bodies are damaged, and every answer is read; on the others anything is wrong, and they end early or stop in the middle."""
    statuses: Counter[int] = Counter()
    sent = 0
    while sent < n_requests:
        n = min(chance.choice((1, 1, 4, 30)), n_requests - sent)
        sent += n
        with socket.create_connection(address, timeout=_ANSWER_S) as connection:
            if chance.random() < 0.67:
                raw = b"".join(_body_request(chance, chance.random() < 0.6, i == n - 1) for i in range(n))
                connection.sendall(raw)
                answer = b"".join(iter(lambda link=connection: link.recv(65_536), b""))
                found = [int(status) for status in _STATUS.findall(answer)]
                assert len(found) == n, (len(found), n, raw, answer)
                statuses.update(found)
            else:
                _send_broken(chance, connection, b"".join(http_request(chance) for _ in range(n)))
    return statuses


def _send_broken(chance: random.Random, connection: socket.socket, raw: bytes) -> None:
    if chance.random() < 0.1:
        raw = raw[: chance.randrange(len(raw))]
    try:
        connection.sendall(raw)
        if chance.random() < 0.7:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
    except TimeoutError:
        raise  # the server neither answers nor cuts
    except OSError:
        pass  # it was cut, as it may be


def descriptors(pid: int) -> int:
    """Open descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Threads of a process."""
    return len(os.listdir(f"/proc/{pid}/task"))


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait_until_no_more_than(most: int, pid: int, deadline_s: float = 60.0) -> int:
    """Wait until a process has at most so many descriptors; returns how many it has."""
    end_s = time.monotonic() + deadline_s
    while (now := descriptors(pid)) > most and time.monotonic() < end_s:
        select.select([], [], [], 0.05)
    return now
