"""One run of the fuzz against a real server, with what must hold after it."""

from __future__ import annotations

import random

import httpx

from gpu_workers.hash_chain import hash_chain_tokens
from tests.support.fuzz import mutations as fuzz
from tests.support.fuzz.inbox_case import fuzz_inboxes
from tests.support.real_server import real_server

_SPARE_DESCRIPTORS = 8  # connections that are being closed, log files that were rotated
_SPARE_BYTES = 64 << 20


def fuzz_server(seed: int, n_requests: int, n_frames: int, n_messages: int = 0) -> None:
    """Nothing restarts, nothing grows, and an ordinary request is answered as before. `n_messages`: to internal inboxes."""
    with real_server("--model", "hash-chain") as server:
        address = ("127.0.0.1", server.port)
        fuzz.fuzz_http(random.Random(seed), address, 300)  # what is made once is made now
        fuzz.fuzz_front(random.Random(seed), server.front, 500)
        before = {child.name: (child.pid, child.incarnation) for child in server.status().children}
        gateway = before["gateway/0"][0]
        listeners = {one for pid, _ in before.values() for one in fuzz.tcp_listeners(pid)}
        assert listeners == {("0100007F", server.port)}, "the server listens on 127.0.0.1 at its port, and nowhere else"
        n_descriptors, n_threads, n_bytes = fuzz.descriptors(gateway), fuzz.threads(gateway), fuzz.resident_bytes(gateway)
        fuzz.fuzz_http(random.Random(seed + 1), address, n_requests)
        fuzz.fuzz_front(random.Random(seed + 2), server.front, n_frames)
        if n_messages:
            fuzz_inboxes(server, seed, n_messages)
        reply = httpx.post(f"{server.url}/v1/generate", json={"tokens": [1, 2], "max_tokens": 5, "temperature": 0}, timeout=60)
        assert reply.json()["tokens"] == hash_chain_tokens([1, 2], 5, 0, 32_768)
        assert {child.name: (child.pid, child.incarnation) for child in server.status().children} == before, server.log()
        most = n_descriptors + _SPARE_DESCRIPTORS
        assert fuzz.wait_until_no_more_than(most, gateway) <= most
        assert fuzz.threads(gateway) <= n_threads + 2
        assert fuzz.resident_bytes(gateway) < n_bytes + _SPARE_BYTES
