"""A batch of texts that never ends is noticed by the times that the embedder has measured, and its calls get their vectors.

The hang is planted by the test; the server has its usual limits, of which those for unknown batches are minutes.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support.embedding.embedders import packaged_folder
from tests.support.real_server import RealServer, real_server
from tests.support.workers.faulty_device import FaultyDevices

pytestmark = pytest.mark.timeout(600)
EMBEDDER = "embedder/0"
NOTICED_S = 60.0  # generous: about 1.5 s on a machine that does nothing else
ANSWER_S = 300.0


async def ask(server: RealServer, texts: list[str]) -> np.ndarray:
    async with httpx.AsyncClient(base_url=server.url, timeout=ANSWER_S) as http:
        answer = await http.post("/v1/embeddings", json={"input": texts})
    assert answer.status_code == 200, answer.text
    return np.asarray([one["embedding"] for one in answer.json()["data"]], np.float32)


async def _hang_once(server: RealServer, devices: FaultyDevices, texts: list[str]) -> np.ndarray:
    """The vectors of texts whose first batch hangs."""
    before = (await asyncio.to_thread(server.child, EMBEDDER)).incarnation
    devices.break_it(EMBEDDER, "hang")
    call, began_s = asyncio.create_task(ask(server, texts)), time.monotonic()
    await asyncio.to_thread(
        server.wait_for, lambda r: any(c.name == EMBEDDER and c.incarnation > before for c in r.children), NOTICED_S
    )
    print(f"a hung batch was noticed after {time.monotonic() - began_s:.2f} s")
    devices.repair(EMBEDDER, "hang")
    return await call


def test_a_batch_that_hangs_is_noticed_and_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged_folder()
    devices = FaultyDevices(tmp_path)
    devices.plant(monkeypatch)
    texts = ["water bear", "a longer text about water bears " * 8]
    with real_server("--model", "hash-chain", "--embedding-model", "minilm") as server:
        right = asyncio.run(ask(server, texts))
        for _ in range(2):
            assert np.abs(asyncio.run(_hang_once(server, devices, texts)) - right).max() < 1e-5
            server.wait_serving()
