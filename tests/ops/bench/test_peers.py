"""Servers beside each other: turns, medians, what their processes use."""

from __future__ import annotations

import os
import sys

import pytest

from ops.bench.own_server import ServerDidNotStart
from ops.bench.peers.peer_server import PeerServer, peer_server
from ops.bench.peers.process_tree import memory_bytes, processor_s
from ops.bench.peers.turns import Workload, take_turns
from supervisor.bench.serve_load import LoadPlan

WORK = Workload("completions", 2, 8, 4, waves=3)
PAIR = [PeerServer(name, f"http://{name}", os.getpid(), 1.0) for name in ("ours", "theirs")]


def result_of(tokens_per_s: float, n_tokens: int = 24, errors: dict | None = None) -> dict:
    return {
        "requests": {"errors": errors or {}}, "output_tokens": n_tokens, "output_tokens_per_s": tokens_per_s,
        "ttft_ms": {"p50": 2.0, "p90": 3.0}, "tpot_ms": {"p50": 4.0, "p90": 5.0},
    }  # fmt: skip


def test_servers_take_turns_with_equal_prompts_and_the_median_counts() -> None:
    plans: list[LoadPlan] = []
    speeds = {"http://ours": iter((10.0, 30.0, 20.0)), "http://theirs": iter((1.0, 2.0, 9.0))}

    def measure(plan: LoadPlan) -> dict:
        plans.append(plan)
        return result_of(next(speeds[plan.url]))

    ours, theirs = take_turns(PAIR, WORK, 3, measure)
    assert (ours.tokens_per_s, theirs.tokens_per_s, ours.first_token_p90_ms, ours.token_p50_ms) == (20.0, 2.0, 3.0, 4.0)
    assert [(plan.url[7:], plan.seed) for plan in plans] == [
        ("ours", 0), ("theirs", 0), ("theirs", 1), ("ours", 1), ("ours", 2), ("theirs", 2),
    ]  # fmt: skip
    assert {(plan.concurrency, plan.requests, plan.output_lengths) for plan in plans} == {(2, 6, "4")}


@pytest.mark.parametrize("wrong", [result_of(1.0, n_tokens=23), result_of(1.0, errors={"cut": {"count": 1}})])
def test_a_turn_without_all_of_its_tokens_is_no_measurement(wrong: dict) -> None:
    with pytest.raises(ValueError, match="ours: expected 24 tokens, got 2"):
        take_turns(PAIR, WORK, 1, lambda plan: wrong)


def test_what_a_process_uses_is_read() -> None:
    before_s = processor_s(os.getpid())
    while processor_s(os.getpid()) == before_s:
        sum(range(10_000))
    assert 1 << 20 < memory_bytes(os.getpid()) < 1 << 40


def test_a_peer_that_ends_at_once_is_reported() -> None:
    with (
        pytest.raises(ServerDidNotStart, match="peer: status 3, no answer at http"),
        peer_server("peer", f"{sys.executable} -c 'raise SystemExit(3)'"),
    ):
        pass
