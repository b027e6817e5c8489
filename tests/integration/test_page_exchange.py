"""The real server with two replicas: one gets the pages that the other has, and the tokens stay the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import Client
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from messages.steps import PAGE_TOKENS
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.timeout(600)]
_N_TOKENS = 8
_PROMPT_PAGES = 10  # that all prompts of a number share
_CROWDS = 20
_CROWD = 40  # requests at once: more than one replica gets, whatever it has


def _prompt(number: int) -> list[int]:
    return [(number * 7919 + index * 104_729) % 1000 + 100 for index in range(_PROMPT_PAGES * PAGE_TOKENS + 1)]


def _ask(client: Client, prompt: list[int], n: int = _N_TOKENS) -> tuple[list[int], int]:
    """(greedy tokens after a prompt, tokens of the prompt that were not computed)."""
    answer = client.generate(prompt, max_tokens=n, temperature=0.0)
    return list(answer.tokens), answer.n_cached


def _moved(server: RealServer, name: str = "exchange_moved") -> float:
    return sum(server.child(f"scheduler/{replica}").statistics.get(name, 0.0) for replica in (0, 1))


def _flags(*more: str) -> tuple[str, ...]:
    sets = ("worker.exchange_bytes=64KiB", "scheduler.tier_loads=always", *more)
    flags = ("--model", "hash-chain", "--max-length", "512", "--replicas", "2")
    return *flags, *(part for each in sets for part in ("--set", each))


@pytest.fixture(scope="module")
def chain() -> Iterator[RealServer]:
    with real_server(*_flags("worker.hash_chain_step_s=0.01")) as server:
        yield server


def _crowd(server: RealServer, number: int) -> None:
    """One request, then many at once with the same prefix: the replica that has it gets too many of them for itself. All
    answers are right."""
    with Client(server.zeromq) as client:
        _ask(client, _prompt(number))
        prompts = [[*_prompt(number), 7, index] for index in range(_CROWD)]
        with ThreadPoolExecutor(_CROWD) as threads:
            answers = list(threads.map(lambda prompt: _ask(client, prompt, 30), prompts))
    for prompt, (tokens, _) in zip(prompts, answers, strict=True):
        assert tokens == hash_chain_tokens(prompt, 30, 0, HASH_CHAIN_VOCABULARY)


def test_a_crowd_moves_its_prefix_to_the_other_replica(chain: RealServer) -> None:
    for number in range(_CROWDS):  # on a busy machine the cache directory may answer too late
        _crowd(chain, number)
        if _moved(chain) >= _PROMPT_PAGES:
            break
    chain.wait_for(lambda report: _moved(chain) >= _PROMPT_PAGES)
    assert _moved(chain, "exchange_failed") == 0
    assert _moved(chain, "exchange_lent") >= _PROMPT_PAGES


@pytest.mark.parametrize("victim", ["scheduler/0", "scheduler/1", "worker/0.0", "worker/1.0", "vault/0"])
def test_a_kill_while_pages_move_costs_no_token(chain: RealServer, victim: str) -> None:
    number = 100 + sum(map(ord, victim))
    with ThreadPoolExecutor(1) as threads:
        crowd = threads.submit(_crowd, chain, number)
        chain.kill(victim, signal.SIGKILL)
        crowd.result()
    chain.wait_serving()


@pytest.mark.slow
@pytest.mark.long
def test_pages_of_a_real_model_give_the_same_tokens() -> None:
    """Answers of a replica that has got the pages are those of one that has computed them."""
    flags = ("--replicas", "2", "--dtype", "float32", "--max-length", "256", "--no-speculation", "--deterministic")
    sets = ("worker.exchange_bytes=50MB", "scheduler.tier_loads=always", "worker.n_slots=2", "worker.kv_memory_bytes=100MB")
    with real_server(*flags, *(part for each in sets for part in ("--set", each))) as server:
        with Client(server.zeromq) as client, ThreadPoolExecutor(_CROWD) as threads:
            for number in range(_CROWDS):
                first = _ask(client, _prompt(number))[0]
                again = list(threads.map(lambda prompt: _ask(client, prompt)[0], [_prompt(number)] * _CROWD))
                assert again == [first] * _CROWD
                if _moved(server) >= _PROMPT_PAGES:
                    break
        server.wait_for(lambda report: _moved(server) >= _PROMPT_PAGES)
        assert _moved(server, "exchange_failed") == 0
