"""Keys and values on a GPU outlive the processes that use them, and a standby gang goes on with them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.vault.kept_memory import KeptMemory
from messages.client import AsyncClient
from tests.support.custody.descriptor_store import StoreProcess
from tests.support.real_server import RealServer, real_server
from tests.support.supervisor.standby_server import gang_in_charge, has_adopted, hit, n_cached, wait_standby, wait_statistic
from tests.support.workers.tiny_model import EIGHT_HEADS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
SHAPE = KvShape(n_layers=4, n_kv_heads=8, head_dim=128, dtype=torch.bfloat16)
N_PAGES = 4097  # of 512 KiB: 2 GiB
DEADLINE_S = 60.0
N_TOKENS, N_STREAMS = 400, 32
NEAR_TIES = 2  # answers that may differ: what is computed again is summed up in another order


class Holder:
    """A process that takes the memory at a store; see `main`."""

    def __init__(self, store: StoreProcess, is_suspect: bool = False) -> None:
        words = [sys.executable, "-m", __name__, str(store.path), str(int(is_suspect))]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.facts = json.loads(self.process.stdout.readline())

    def write(self, value: float) -> None:
        """Fill all pages, again and again, until the process is killed. Returns when the first round is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{value}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "written\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)


def main(path: str, is_suspect: str) -> None:
    """Warm up on private pages, take the memory, say what is in it; then fill it with the numbers on stdin."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    pages = KvPages.allocate(SHAPE, N_PAGES, "cuda:0", is_shared=True)
    assert pages.region is not None
    pages.storage[-1].fill_(3.0)  # as a warm-up does
    graph, value = torch.cuda.CUDAGraph(), torch.zeros((), dtype=torch.bfloat16, device="cuda")
    with torch.cuda.graph(graph):  # captured before the memory is exchanged
        pages.storage.copy_(value.expand_as(pages.storage))
    memory = KeptMemory(Path(path), "worker/0.0", b"test")
    memory.reserve(pages.region)
    began_s = time.monotonic()
    memory.map_region(pages.region, bool(int(is_suspect)))
    took_ms = (time.monotonic() - began_s) * 1e3
    least, most = (float(one) for one in pages.storage.aminmax())
    print(json.dumps({"number": memory.number, "least": least, "most": most, "took_ms": took_ms}), flush=True)
    value.fill_(float(sys.stdin.readline()))
    for turn in range(1 << 30):
        graph.replay()
        torch.cuda.synchronize()
        if turn == 0:
            print("written", flush=True)


def wait_freed(free_bytes: int, slack_bytes: int = 256 << 20) -> None:
    """Until the device has about as much free memory as before."""
    end_s = time.monotonic() + DEADLINE_S
    while (now_free := torch.cuda.mem_get_info()[0]) < free_bytes - slack_bytes:
        assert time.monotonic() < end_s, f"{free_bytes - now_free} bytes are still in use"
        time.sleep(0.05)


def test_pages_outlive_their_process_but_not_when_they_are_suspect(store: StoreProcess) -> None:
    torch.zeros(1, device="cuda")
    before_bytes = torch.cuda.mem_get_info()[0]
    first = Holder(store)
    assert (first.facts["least"], first.facts["most"]) == (0.0, 0.0)
    first.write(7.0)
    first.kill()
    second = Holder(store)
    print("taking the memory of a dead process:", second.facts)
    assert second.facts == {**second.facts, "number": first.facts["number"], "least": 7.0, "most": 7.0}
    second.write(5.0)
    second.kill()
    third = Holder(store, is_suspect=True)
    assert third.facts["number"] != first.facts["number"]
    assert (third.facts["least"], third.facts["most"]) == (0.0, 0.0)
    third.kill()
    assert torch.cuda.mem_get_info()[0] < before_bytes - (1 << 30), "the store alone holds the pages"
    store.kill()
    wait_freed(before_bytes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    path = tmp_path_factory.mktemp("eight-heads")
    (path / "config.json").write_text(json.dumps(EIGHT_HEADS))
    return str(path)


async def follow(client: AsyncClient, index: int, tokens: list[int]) -> None:
    prompt = [3 + (index * 37 + i * 11) % 4000 for i in range(40 + 7 * index)]
    options: dict[str, Any] = {"max_tokens": N_TOKENS, "temperature": 0.0, "ignore_eos": True}
    tokens += (await client.generate(prompt, **options)).tokens


async def ask_all(server: RealServer, victims: tuple[str, ...] = ()) -> list[list[int]]:
    """The answers to all prompts at once; meanwhile the victims are killed one by one, with a standby ready each time."""
    answers: list[list[int]] = [[] for _ in range(N_STREAMS)]
    async with AsyncClient(server.zeromq) as client:
        work = asyncio.gather(*(follow(client, i, tokens) for i, tokens in enumerate(answers)))
        for victim in victims:
            await asyncio.to_thread(hit, server, victim, signal.SIGKILL)
        await work
    return answers


def n_different(answers: list[list[int]], expected: list[list[int]]) -> int:
    """How many answers are not the expected ones. All of them are whole."""
    assert [len(answer) for answer in answers] == [N_TOKENS] * N_STREAMS
    n = sum(answer != right for answer, right in zip(answers, expected, strict=True))
    print(f"{n} of {N_STREAMS} answers differ")
    return n


@pytest.mark.parametrize("flags", [("--gpus", "1"), ("--gpus", "2", "--tp", "2")], ids=["tp 1", "tp 2"])
def test_a_standby_takes_over_and_all_answers_are_the_same(folder: str, flags: tuple[str, ...]) -> None:
    if torch.cuda.device_count() < int(flags[1]):
        pytest.skip(f"needs {flags[1]} devices")
    torch.zeros(1, device="cuda")
    before_bytes = torch.cuda.mem_get_info()[0]
    model = ("--model", folder, "--load-format", "random", "--dtype", "float32", "--log-level", "info")
    with real_server(*model, "--standby", *flags) as server:
        wait_standby(server)
        expected = asyncio.run(ask_all(server))
        for victims in (("active",), ("scheduler/0",), ("active", "scheduler/0"), ("active",)):
            wait_standby(server)
            wait_statistic(server, "vault/0", "entries", 2.0)
            was_active = gang_in_charge(server)
            assert n_different(asyncio.run(ask_all(server, victims)), expected) <= NEAR_TIES, victims
            server.wait_for(has_adopted)
            if victims[0] == "active":
                assert gang_in_charge(server) != was_active
        n_promoted = server.log().count("standby promoted")
        assert n_promoted >= 3
        wait_standby(server)
        n_cached(server)
        assert n_cached(server) == 192
        n_ready = server.log().count("gang ready")
        hit(server, "active", signal.SIGSEGV)  # as a fault of the device: nothing is adopted
        server.wait_for(lambda report: server.log().count("gang ready") > n_ready)
        assert n_cached(server) == 0
        assert n_different(asyncio.run(ask_all(server)), expected) <= NEAR_TIES
    wait_freed(before_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
