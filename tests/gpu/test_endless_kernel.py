"""A kernel that never ends on one device: its gang is killed and replaced, and all streams go on with the same tokens."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import torch

from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.workers.endless_kernel import EndlessKernel

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
N_STREAMS, N_TOKENS, N_BEFORE = 16, 1500, 200
NOTICED_S = 3.0  # generous: 0.5 s until the step counts as hung, and a takeover of the standby
DEADLINE_S = 60.0
WORKER = "worker/0.0"


@pytest.mark.parametrize("n_devices", [1, 2])
def test_streams_go_on_after_a_kernel_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_devices: int) -> None:
    if torch.cuda.device_count() < n_devices:
        pytest.skip(f"needs {n_devices} devices")
    kernel = EndlessKernel(tmp_path)
    kernel.plant(monkeypatch)
    with real_server("--gpus", str(n_devices), "--tp", str(n_devices), "--standby", "--deterministic") as server:
        server.wait_for(lambda report: all(child.state == "ready" for child in report.children), DEADLINE_S)
        calm, _ = asyncio.run(_stream_all(server, None))
        answers, longest_s = asyncio.run(_stream_all(server, kernel))
        kernel.stop(WORKER)
        assert server.child(WORKER).incarnation > 1
    print(f"{n_devices} devices: the longest pause was {longest_s:.2f} s")
    assert answers == calm
    assert longest_s < NOTICED_S


async def _stream_all(server: RealServer, kernel: EndlessKernel | None) -> tuple[list[list[int]], float]:
    """The tokens of all streams, and the longest pause of any. `kernel` begins when the first has `N_BEFORE` tokens."""
    is_begun, longest_s = kernel is None, 0.0

    async def stream(client: AsyncClient, number: int) -> list[int]:
        nonlocal is_begun, longest_s
        tokens, last_s = list[int](), 0.0
        prompt = [number + 10] * 20
        pieces = client.stream(tokens=prompt, max_tokens=N_TOKENS, temperature=0.0, ignore_eos=True, deadline_s=DEADLINE_S)
        async for piece in pieces:
            now_s = time.monotonic()
            longest_s, last_s = max(longest_s, now_s - (last_s or now_s)), now_s
            tokens += piece.ids
            if kernel is not None and not is_begun and len(tokens) >= N_BEFORE:
                is_begun = True
                kernel.begin(WORKER)
        return tokens

    async with AsyncClient(server.zeromq) as client:
        return await asyncio.gather(*(stream(client, number) for number in range(N_STREAMS))), longest_s
