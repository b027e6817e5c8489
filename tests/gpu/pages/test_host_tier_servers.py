"""A real server on a GPU with a host tier: evicted prefixes come back, and answers stay the same, also after kills."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

from messages.client import Client
from messages.steps import PAGE_TOKENS
from tests.support.real_server import RealServer, real_server
from tests.support.supervisor.standby_server import hit, wait_standby
from tests.support.workers.tiny_model import EIGHT_HEADS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
_PAGE_BYTES = 6 * 2 * PAGE_TOKENS * 8 * 64 * 4  # of EIGHT_HEADS in float32
_PROMPT_PAGES, _N_PROMPTS, _N_TOKENS = 20, 12, 8
_SETS = (f"worker.kv_memory_bytes={100 * _PAGE_BYTES}", "worker.n_slots=4", "scheduler.tier_loads=always")


def _flags(folder: Path, *more: str) -> list[str]:
    model = ["--model", str(folder), "--load-format", "random", "--dtype", "float32", "--no-speculation"]
    tier = ["--gpus", "1", "--max-length", "512", "--host-cache", str(400 * _PAGE_BYTES), "--log-level", "info"]
    return [*model, *tier, *(part for each in _SETS for part in ("--set", each)), *more]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    (tmp_path / "config.json").write_text(json.dumps(EIGHT_HEADS))
    return tmp_path


def _ask_all(server: RealServer) -> list[list[int]]:
    """Greedy tokens after each prompt."""
    answers = []
    with Client(server.zeromq) as client:
        for number in range(_N_PROMPTS):
            prompt = [3 + (number * 7919 + index * 104_729) % 4000 for index in range(_PROMPT_PAGES * PAGE_TOKENS + 1)]
            answers.append(list(client.generate(prompt, max_tokens=_N_TOKENS, temperature=0.0, ignore_eos=True).tokens))
    return answers


def _count(server: RealServer, name: str) -> float:
    return server.child("scheduler/0").statistics.get(f"host_{name}", 0.0)


def _show(server: RealServer) -> None:
    counts = {name: _count(server, name) for name in ("stored", "loaded", "failed", "load_s")}
    print(counts, f"{counts['load_s'] / max(counts['loaded'], 1) * 1e6:.0f} us a page")


def test_prefixes_come_back_and_answers_are_the_same(folder: Path) -> None:
    with real_server(*_flags(folder, "--no-standby", "--deterministic")) as server:
        expected = _ask_all(server)
        for _ in range(4):
            assert _ask_all(server) == expected
        _show_whole_loads(server)


@pytest.mark.parametrize(
    "small",
    [("--kv-dtype", "int8"), ("--kv-dtype", "int4"), ("--host-cache-dtype", "int4"), ("--host-cache-dtype", "adaptive")],
    ids="-".join,
)
def test_compressed_pages_come_back(folder: Path, small: tuple[str, str]) -> None:
    with real_server(*_flags(folder, "--no-standby", "--dtype", "bfloat16", *small)) as server:
        expected = _ask_all(server)
        for _ in range(4):
            n_equal = sum(answer == other for answer, other in zip(_ask_all(server), expected, strict=True))
            print(f"{n_equal} of {_N_PROMPTS} answers are equal")  # the rest of a prompt may be computed in another batch
        _show_whole_loads(server)


def _show_whole_loads(server: RealServer) -> None:
    server.wait_for(lambda report: _count(server, "loaded") > _PROMPT_PAGES)
    _show(server)
    assert _count(server, "failed") == 0


def test_a_standby_has_the_places_of_the_gang_before_it(folder: Path) -> None:
    with real_server(*_flags(folder, "--standby", "--deterministic")) as server:
        wait_standby(server)
        expected = _ask_all(server)
        for turn in range(3):
            assert _ask_all(server) == expected
            wait_standby(server)
            before = _count(server, "loaded")
            hit(server, "active", signal.SIGKILL)
            assert _ask_all(server) == expected
            assert _ask_all(server) == expected
            server.wait_for(lambda report, before=before: _count(server, "loaded") > before)
            print(f"after kill {turn + 1}:")
            _show(server)
        assert server.log().count("host tier ready") >= 3
