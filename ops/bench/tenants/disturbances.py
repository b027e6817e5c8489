"""What a tenant does to disturb others: floods, requests that kill workers, streams that it does not read."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ops.bench.tenants.timed_tenant import ANSWER_S, TimedTenant
from supervisor.bench.prompts import random_ids

VOCABULARY = 10_000
_DEADLY = 31_337  # above the vocabulary of ordinary prompts here
_PLANTED = f"""
import ctypes
from gpu_workers.hash_chain_engine import HashChainEngine

_launch = HashChainEngine.launch

def launch(self, plan):
    if {_DEADLY} in plan.new_tokens:
        ctypes.string_at(0)
    return _launch(self, plan)

HashChainEngine.launch = launch
"""
_BEGIN_S = 2.0  # until the disturbance is as great as it becomes
_STREAM_TOKENS = 2000  # of a stream that nobody reads


def plant_deadly_token(folder: Path) -> str:
    """Write what makes the hash chain die of one token into a folder. Returns the Python path of a server that has it."""
    (folder / "sitecustomize.py").write_text(_PLANTED)
    return f"{folder}:{Path(__file__).parents[3]}"


@contextlib.contextmanager
def asking(
    port: int, key: str, n_tokens: int, n: int, *, is_deadly: bool = False, pause_s: float = 0.0
) -> Iterator[Counter[int]]:
    """While the body runs, `n` connections ask one request after the other. is_deadly: each kills the worker that computes it.
    pause_s: between two of a connection. Yields their statuses."""
    statuses, is_over = Counter[int](), threading.Event()

    def ask(seed: int) -> None:
        tenant, chance = TimedTenant(port, key), random.Random(seed)
        while not is_over.is_set():
            prompt = random_ids(n_tokens, chance, VOCABULARY)
            try:
                status, _ = tenant.ask([*prompt, _DEADLY] if is_deadly else prompt, 64)
            except (OSError, http.client.HTTPException):
                status, tenant = 0, TimedTenant(port, key)
            statuses[status] += 1
            is_over.wait(pause_s if status == 200 or is_deadly else max(pause_s, 0.05))

    threads = [threading.Thread(target=ask, args=(seed,), daemon=True) for seed in range(n)]
    for thread in threads:
        thread.start()
    time.sleep(_BEGIN_S)
    try:
        yield statuses
    finally:
        is_over.set()
        for thread in threads:
            thread.join(ANSWER_S)


@contextlib.contextmanager
def not_reading(port: int, key: str, n_tokens: int, n: int) -> Iterator[Counter[int]]:
    """While the body runs, `n` streams are open of which nothing is read. Yields what gets their statuses at the end."""
    statuses, chance = Counter[int](), random.Random(7)
    tenants = [TimedTenant(port, key) for _ in range(n)]
    for tenant in tenants:
        try:
            tenant.begin_unread(random_ids(n_tokens, chance, VOCABULARY), _STREAM_TOKENS)
        except OSError:
            statuses[0] += 1
    time.sleep(_BEGIN_S)
    try:
        yield statuses
    finally:
        for tenant in tenants:
            with contextlib.suppress(OSError, http.client.HTTPException):
                statuses[tenant.status_now()] += 1
            tenant.close()
