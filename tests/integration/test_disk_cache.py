"""The real server with a small device, a small host cache and a disk behind it, which loses and damages what it has."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import Client
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from messages.steps import PAGE_TOKENS
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.timeout(600)]
_N_TOKENS = 8
_PROMPT_PAGES = 10  # of each prompt, and a token more
_N_PROMPTS = 20  # two hundred pages: the device has 40 and the host cache 64


def _prompt(number: int) -> list[int]:
    return [(number * 7919 + index * 104_729) % 1000 + 100 for index in range(_PROMPT_PAGES * PAGE_TOKENS + 1)]


def _ask(client: Client, number: int) -> int:
    """Ask for greedy tokens after a prompt, and check them. Returns how many tokens of the prompt were not computed."""
    answer = client.generate(_prompt(number), max_tokens=_N_TOKENS, temperature=0.0)
    assert list(answer.tokens) == hash_chain_tokens(_prompt(number), _N_TOKENS, 0, HASH_CHAIN_VOCABULARY)
    return answer.n_cached


def _ask_all(client: Client) -> int:
    return sum(_ask(client, number) for number in range(_N_PROMPTS))


def _figure(server: RealServer, name: str) -> float:
    return server.child("scheduler/0").statistics.get(name, 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pages"


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk") / "pages"


def _chain(folder: Path, *more: str) -> AbstractContextManager[RealServer]:
    """A device of 40 pages of the hash chain. Its steps take no time, so that the disk would never be worth it."""
    sets = ("worker.hash_chain_pages=40", "scheduler.tier_loads=always", f"worker.disk_cache_dir={folder}", *more)
    flags = ("--model", "hash-chain", "--max-length", "256", "--host-cache", "8KiB", "--disk-cache", "2MiB")
    return real_server(*flags, *(part for each in sets for part in ("--set", each)))


@pytest.fixture(scope="module")
def chain(shared_folder: Path) -> Iterator[RealServer]:
    with _chain(shared_folder) as server:
        yield server


def test_prefixes_come_back_from_the_disk_and_the_file_ends_with_the_server_if_it_should(folder: Path) -> None:
    with _chain(folder, "worker.disk_cache_kept=false") as server, Client(server.zeromq) as client:
        assert _ask_all(client) == 0
        assert _ask_all(client) > _N_PROMPTS * PAGE_TOKENS
        server.wait_for(lambda report: _figure(server, "disk_read") > _N_PROMPTS)
        assert [path.name for path in folder.iterdir()] == ["worker-0.0.pages"]
    assert not list(folder.iterdir())


def test_a_server_that_is_started_again_finds_the_pages_of_the_last_one(folder: Path) -> None:
    with _chain(folder) as server, Client(server.zeromq) as client:
        assert _ask_all(client) == 0
        server.wait_for(lambda report: _figure(server, "disk_pages") > 4 * _PROMPT_PAGES)
    with _chain(folder) as server, Client(server.zeromq) as client:
        server.wait_for(lambda report: _figure(server, "disk_pages") > 4 * _PROMPT_PAGES)
        assert _ask_all(client) > 2 * _PROMPT_PAGES * PAGE_TOKENS
        server.wait_for(lambda report: _figure(server, "disk_read") > 2 * _PROMPT_PAGES)


def test_damage_and_loss_on_the_disk_cost_no_token(chain: RealServer, shared_folder: Path) -> None:
    rng = random.Random(3)
    file = shared_folder / "worker-0.0.pages"
    with Client(chain.zeromq) as client:
        _ask_all(client)
        for _ in range(8):
            size = file.stat().st_size
            with file.open("r+b") as raw:
                for _ in range(30):
                    raw.seek(4096 * rng.randrange(1, size // 4096) + rng.randrange(200))
                    raw.write(rng.randbytes(1))
            if rng.random() < 0.5:
                os.truncate(file, rng.randrange(size))
            _ask_all(client)
    chain.wait_for(lambda report: _figure(chain, "disk_failed") > 0 and _figure(chain, "disk_read") > 0)


@pytest.mark.parametrize("victim", ["worker/0.0", "scheduler/0"])
def test_a_kill_costs_no_token_and_the_disk_goes_on(chain: RealServer, victim: str) -> None:
    with Client(chain.zeromq) as client:
        _ask_all(client)
        _ask_all(client)
        chain.kill(victim, signal.SIGKILL)
        _ask_all(client)
        is_new = victim == "scheduler/0"
        before = 0.0 if is_new else _figure(chain, "disk_read")
        _ask_all(client)
        chain.wait_for(lambda report: chain.child(victim).incarnation > 1 and _figure(chain, "disk_read") > before)
    chain.wait_serving()


def test_a_disk_that_cannot_be_used_costs_no_token(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # in the place of a directory
    with _chain(tmp_path / "file" / "in") as server, Client(server.zeromq) as client:
        _ask_all(client)
        _ask_all(client)
        server.wait_for(lambda report: _figure(server, "disk_failed") > 0)
        assert _figure(server, "disk_read") == 0
        assert server.child("worker/0.0").incarnation == 1


@pytest.mark.slow
@pytest.mark.long
def test_pages_of_two_ranks_come_back_where_both_have_them(folder: Path) -> None:
    """A real model whose second rank loses some pages."""
    page_bytes = 737_280 // 2
    sets = (f"worker.kv_memory_bytes={40 * page_bytes}", "worker.n_slots=4", f"worker.disk_cache_dir={folder}")
    flags = ("--tp", "2", "--dtype", "float32", "--host-cache", str(64 * page_bytes), "--disk-cache", "200MiB")
    more = ("--max-length", "256", "--no-speculation", "--deterministic", "--set", "scheduler.tier_loads=always")
    with real_server(*flags, *more, *(part for each in sets for part in ("--set", each))) as server:
        with Client(server.zeromq) as client:
            numbers = range(12)
            first = [client.generate(_prompt(number), max_tokens=4, temperature=0.0).tokens for number in numbers]
            again = [client.generate(_prompt(number), max_tokens=4, temperature=0.0) for number in numbers]
            assert [answer.tokens for answer in again] == first
            server.wait_for(lambda report: _figure(server, "disk_read") > 0)
            before, failed = _figure(server, "disk_read"), _figure(server, "disk_failed")
            os.truncate(folder / "worker-0.1.pages", 4096)
            third = [client.generate(_prompt(number), max_tokens=4, temperature=0.0).tokens for number in numbers]
            assert third == first
        server.wait_for(lambda report: _figure(server, "disk_failed") > failed)
        assert len(list(folder.iterdir())) == 2
        assert before > 0
