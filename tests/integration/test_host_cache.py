"""The real server with a small device and a host cache: prefixes that were evicted come back, and the tokens stay the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import Client
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from messages.steps import PAGE_TOKENS
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.timeout(600)]
_PAGE_BYTES = {"auto": 737_280, "int8": 190_080, "int4": 103_680}  # of SmolLM2 in float32, by --kv-dtype
_N_TOKENS = 8
_PROMPT_PAGES = 5  # of each prompt, and a token more
_DEVICE_PAGES = 20  # for four prompts


def _prompt(number: int) -> list[int]:
    return [(number * 7919 + index * 104_729) % 1000 + 100 for index in range(_PROMPT_PAGES * PAGE_TOKENS + 1)]


def _ask(client: Client, number: int) -> tuple[list[int], int]:
    """(greedy tokens after a prompt, tokens of the prompt that were not computed)."""
    answer = client.generate(_prompt(number), max_tokens=_N_TOKENS, temperature=0.0)
    return list(answer.tokens), answer.n_cached


def _moved(server: RealServer, name: str) -> float:
    return server.child("scheduler/0").statistics.get(name, 0.0)  # a scheduler says it when it first tells of its progress


@pytest.fixture(scope="module", params=["same", "adaptive"])
def chain(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """A small device of the hash chain. Its steps take no time, so that loads would never be worth it. The host cache has
    to compress some pages, if it does so."""
    sets = (f"worker.hash_chain_pages={_DEVICE_PAGES}", "scheduler.tier_loads=always")
    with real_server(
        "--model",
        "hash-chain",
        "--max-length",
        "128",
        "--host-cache",
        "64KiB" if request.param == "same" else "3KiB",
        "--host-cache-dtype",
        request.param,
        *(part for each in sets for part in ("--set", each)),
    ) as server:
        yield server


def test_evicted_prefixes_come_back(chain: RealServer) -> None:
    with Client(chain.zeromq) as client:
        for number in range(6):
            assert _ask(client, number)[1] == 0
        for number in range(6):
            tokens, n_cached = _ask(client, number)
            assert tokens == hash_chain_tokens(_prompt(number), _N_TOKENS, 0, HASH_CHAIN_VOCABULARY)
            assert n_cached == _PROMPT_PAGES * PAGE_TOKENS
    chain.wait_for(lambda report: _moved(chain, "host_loaded") >= _PROMPT_PAGES)
    assert _moved(chain, "host_failed") == 0


@pytest.mark.parametrize("victim", ["worker/0.0", "scheduler/0"])
def test_a_kill_costs_the_pages_and_no_token(chain: RealServer, victim: str) -> None:
    with Client(chain.zeromq) as client:
        for number in range(6):
            _ask(client, number)
        chain.kill(victim, signal.SIGKILL)
        for number in range(6):
            tokens, _ = _ask(client, number)
            assert tokens == hash_chain_tokens(_prompt(number), _N_TOKENS, 0, HASH_CHAIN_VOCABULARY)
    chain.wait_serving()


def _flags(kv_dtype: str, *more: str) -> tuple[str, ...]:
    """Of a server of the small model in float32 with a small device."""
    sets = ("--set", f"worker.kv_memory_bytes={_DEVICE_PAGES * _PAGE_BYTES[kv_dtype]}", "--set", "worker.n_slots=4")
    return ("--kv-dtype", kv_dtype, "--dtype", "float32", "--max-length", "128", "--no-speculation", *sets, *more)


@pytest.mark.long  # in `make test` those of the hash chain do, above
@pytest.mark.parametrize("kv_dtype", ["auto", "int8", "int4"])
def test_pages_of_a_real_model_come_back(kv_dtype: str) -> None:
    flags = _flags(kv_dtype, "--host-cache", "200MB", "--deterministic")
    with real_server(*flags) as server, Client(server.zeromq) as client:
        first = [_ask(client, number)[0] for number in range(5)]
        again = [_ask(client, number) for number in range(5)]
        assert [tokens for tokens, _ in again] == first
        assert all(n_cached == _PROMPT_PAGES * PAGE_TOKENS for _, n_cached in again)
        server.wait_for(lambda report: _moved(server, "host_loaded") >= _PROMPT_PAGES)
        assert _moved(server, "host_failed") == 0


@pytest.mark.long
@pytest.mark.parametrize(("kv_dtype", "host_dtype"), [("int8", "int4"), ("auto", "adaptive")])
def test_rounded_pages_of_a_real_model_come_back(kv_dtype: str, host_dtype: str) -> None:
    """Most tokens are as before: a prompt says clearly what follows, or else it may go on in another way."""
    flags = _flags(kv_dtype, "--host-cache", str(45 * _PAGE_BYTES["int4"]), "--host-cache-dtype", host_dtype)
    with real_server(*flags) as server, Client(server.zeromq) as client:
        first = [_ask(client, number)[0] for number in range(5)]
        again = [_ask(client, number) for number in range(5)]
        assert all(n_cached == _PROMPT_PAGES * PAGE_TOKENS for _, n_cached in again)
        pairs = [pair for before, (after, _) in zip(first, again, strict=True) for pair in zip(before, after, strict=True)]
        print(f"{sum(one == other for one, other in pairs)} of {len(pairs)} tokens are equal")
        assert sum(one == other for one, other in pairs) >= len(pairs) // 2
        server.wait_for(lambda report: _moved(server, "host_loaded") >= _PROMPT_PAGES)
        assert _moved(server, "host_failed") == 0
