"""Mutated HTTP requests and ZeroMQ frames for a real server, from a seed; and what of a process may not grow meanwhile."""

from __future__ import annotations

import os
import random
import select
import socket
import time
from pathlib import Path

import zmq

from messages import public
from messages.wire.codec import Codec
from messages.wire.message import Message
from tests.support.message_examples import PUBLIC

_ANSWER_S = 60.0
_PATHS = (b"/v1/completions", b"/v1/generate", b"/v1/batch", b"/v1/chat/completions", b"/tokenize", b"/detokenize", b"/nothing")
_BODIES = (
    b'{"prompt":"Hi","max_tokens":2}',
    b'{"tokens":[3,4],"max_tokens":2,"temperature":0,"stop":["a"],"seed":1}',
    b'{"tokens":[[1],[2,3]],"max_tokens":1}',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"max_tokens":1,"stream":true}',
    b'{"prompt":[1,2],"n":2,"max_tokens":1,"logprobs":1,"top_p":0.5,"metadata":{"a":[{}]}}',
)
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


def http_request(chance: random.Random) -> bytes:
    """One request, of which something is wrong more often than not."""
    body = mutated(chance, chance.choice(_BODIES), 3)
    length = len(body) if chance.random() < 0.95 else chance.choice((0, len(body) + 1, -1, 10**30))
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n" % (chance.choice(_PATHS), length)
    if chance.random() < 0.2:
        head = mutated(chance, head, 3)
    if chance.random() < 0.05:
        head += b"x-fuzz: " + b"a" * chance.randrange(40_000) + b"\r\n"
    return head + b"\r\n" + body


def fuzz_http(chance: random.Random, address: tuple[str, int], n_requests: int) -> None:
    """Send requests over connections that end early, pipeline, or stop in the middle."""
    sent = 0
    while sent < n_requests:
        n = min(chance.choice((1, 1, 4, 30)), n_requests - sent)
        raw = b"".join(http_request(chance) for _ in range(n))
        sent += n
        with socket.create_connection(address, timeout=_ANSWER_S) as connection:
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


def fuzz_front(chance: random.Random, endpoint: str, n_frames: int) -> None:
    """Send mutated messages of legal conversations to the public ZeroMQ socket, and read what comes back."""
    codec: Codec[Message] = Codec((*public.ClientMessage.__args__, *public.FrontMessage.__args__))
    legal = [codec.encode(example) for example in PUBLIC]
    context = zmq.Context()
    try:
        for begin in range(0, n_frames, 500):
            client = context.socket(zmq.DEALER)
            client.setsockopt(zmq.LINGER, 0)
            client.connect(endpoint)
            for _ in range(min(500, n_frames - begin)):
                frames = [mutated(chance, frame) for frame in chance.choice(legal)]
                if chance.random() < 0.05:
                    frames = frames * chance.randrange(3)
                if frames:
                    client.send_multipart(frames)
                while client.poll(0):
                    client.recv_multipart()
            client.poll(100)
            client.close()
    finally:
        context.destroy(linger=0)


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
