"""One run of the fuzz against a real server, with what must hold after it."""

from __future__ import annotations

import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from gpu_workers.hash_chain import hash_chain_tokens
from ops.bench.leaks.held_resources import descendants_of
from tests.support.fuzz import mutations as fuzz
from tests.support.fuzz.conversations import fuzz_zeromq
from tests.support.fuzz.inbox_case import fuzz_inboxes
from tests.support.fuzz.leaving_clients import leave_early
from tests.support.fuzz.listeners import listeners
from tests.support.real_server import RealServer, real_server

_N_CLIENTS = 4
_ERROR = re.compile("never retrieved|[Ee]xception|Traceback|ASGI|Error")  # lines that nothing from outside may cause
_CONTEXT = "512"  # tokens; the longest ordinary request of a fuzz has 300
_ROLES = {"supervisor", "custodian", "cache_directory", "speculation", "worker", "scheduler", "gateway", "zeromq"}
_OF_TENANTS = ("api-keys*", "tenants*", "accounts*", "audit*")  # files of a server with API keys
_SPARE_DESCRIPTORS = 8  # connections that are being closed, log files that were rotated
_SPARE_BYTES = 64 << 20


def check_inventory(server: RealServer, n_gloo_ports: int = 0) -> set[str]:
    """The server, with all its processes, listens on 127.0.0.1 at its port and in its private directory, and nowhere else.

    `n_gloo_ports`: further ports of 127.0.0.1, where gloo meets other ranks on CPUs: of each rank one for each of its groups.
    Returns the roles of the sockets in the directory; "zeromq" is the one of ZeroMQ clients.
    """
    own = f"tcp 127.0.0.1:{server.port}"
    by_pid = {pid: listeners(pid) for pid in (server.process.pid, *descendants_of(server.process.pid))}
    found = set().union(*by_pid.values())
    ranks = [child.pid for child in server.status().children if child.name.startswith("worker/")]
    gloo = [one for pid in ranks for one in by_pid[pid] - {own} if one.startswith("tcp 127.0.0.1:")]
    assert len(gloo) == len(set(gloo)) == n_gloo_ports, gloo
    unix = {one.removeprefix("unix ") for one in found if one.startswith("unix ")}
    assert found == {own, *gloo, *(f"unix {path}" for path in unix)}
    roles = {Path(path).name.partition(".")[0].partition("-")[0] for path in unix}
    assert {str(Path(path).parent) for path in unix} == {str(server.run_dir)}
    assert server.run_dir.stat().st_mode & 0o777 == 0o700
    journals = [*server.run_dir.glob("journal-*"), *server.run_dir.glob("journal-*/*")]
    assert len(journals) >= 2
    assert not [path for path in journals if path.stat().st_mode & 0o077], "they hold prompts"
    of_tenants = [path for name in _OF_TENANTS for path in server.run_dir.glob(name) if not path.is_socket()]
    assert len(of_tenants) >= 3 * ("accounts" in roles), "the keys, the accounts and their log"
    assert not [path for path in of_tenants if path.stat().st_mode & 0o077]
    return roles


def _fuzz_http(seed: int, address: tuple[str, int], n_requests: int) -> Counter[int]:
    """The statuses of the answers to so many requests, which several clients send at the same time."""
    with ThreadPoolExecutor(_N_CLIENTS) as pool:
        each = n_requests // _N_CLIENTS
        parts = pool.map(lambda i: fuzz.fuzz_http(random.Random(f"{seed} {i}"), address, each), range(_N_CLIENTS))
        return sum(parts, Counter())


def _fuzz_connections(seed: int, address: tuple[str, int], n_clients: int) -> None:
    """So many clients that leave early, several of them at the same time."""
    with ThreadPoolExecutor(_N_CLIENTS) as pool:
        each = n_clients // _N_CLIENTS
        list(pool.map(lambda i: leave_early(random.Random(f"{seed} {i}"), address, each), range(_N_CLIENTS)))


def fuzz_server(seed: int, n_requests: int, n_frames: int, n_messages: int = 0) -> None:
    """Nothing restarts, nothing grows, and an ordinary request is answered as before. `n_messages`: to internal inboxes."""
    # a request whose limit of tokens was damaged is answered to the end of the context
    with real_server("--model", "hash-chain", "--max-length", _CONTEXT) as server:
        address = ("127.0.0.1", server.port)
        fuzz.fuzz_http(random.Random(seed), address, 300)  # what is made once is made now
        fuzz_zeromq(random.Random(seed), server.zeromq, 100)
        before = {child.name: (child.pid, child.incarnation) for child in server.status().children}
        gateway = before["gateway/0"][0]
        assert check_inventory(server) == _ROLES
        n_descriptors, n_threads, n_bytes = fuzz.descriptors(gateway), fuzz.threads(gateway), fuzz.resident_bytes(gateway)
        statuses = _fuzz_http(seed + 1, address, n_requests)
        assert statuses[200] > n_requests / 6, statuses
        assert statuses[400] > n_requests / 6, statuses
        _fuzz_connections(seed + 3, address, n_requests // 2)
        heard = fuzz_zeromq(random.Random(seed + 2), server.zeromq, n_frames)
        assert heard["Accepted"] > n_frames / 2, heard
        assert heard["Failed"] > n_frames / 4, heard
        if n_messages:
            fuzz_inboxes(server, seed, n_messages)
        reply = httpx.post(f"{server.url}/v1/generate", json={"tokens": [1, 2], "max_tokens": 5, "temperature": 0}, timeout=60)
        assert reply.json()["tokens"] == hash_chain_tokens([1, 2], 5, 0, 32_768)
        assert {child.name: (child.pid, child.incarnation) for child in server.status().children} == before, server.log()
        assert not [line for line in server.log().splitlines() if _ERROR.search(line)]
        most = n_descriptors + _SPARE_DESCRIPTORS
        assert fuzz.wait_until_no_more_than(most, gateway) <= most
        assert fuzz.threads(gateway) <= n_threads + 2
        assert fuzz.resident_bytes(gateway) < n_bytes + _SPARE_BYTES
