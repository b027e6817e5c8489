"""The same work for several servers by turns, and what each needed for it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from ops.bench.peers.peer_server import PeerServer
from ops.bench.peers.process_tree import memory_bytes, processor_s
from supervisor.bench.serve_load import LoadPlan, measure

_LEAST_REQUESTS = 4  # of one turn


@dataclass(frozen=True)
class Workload:
    """Streams side by side, each of one request after the other."""

    endpoint: str  # "completions": prompts are random token ids; "chat": random words
    streams: int
    prompt_tokens: int
    new_tokens: int
    waves: int  # requests of each stream

    @property
    def title(self) -> str:
        """For tables."""
        return f"{self.streams} {'chat' if self.endpoint == 'chat' else 'streams'}"

    def plan(self, url: str, seed: int) -> LoadPlan:
        """The load of one turn. Each seed gives other prompts."""
        return LoadPlan(
            url, endpoint=self.endpoint, prompt_kind="text" if self.endpoint == "chat" else "ids", seed=seed,
            input_lengths=str(self.prompt_tokens), output_lengths=str(self.new_tokens),
            concurrency=self.streams, requests=max(self.streams * self.waves, _LEAST_REQUESTS),
            keeps_connections=False,  # llama.cpp closes some that it has promised to keep
        )  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Of one turn, or the medians of several."""

    tokens_per_s: float
    first_token_p50_ms: float
    first_token_p90_ms: float
    token_p50_ms: float
    token_p90_ms: float
    processor_ms_per_token: float  # of all processes of the server, prompts included
    memory_mib: float  # afterwards


Measure = Callable[[LoadPlan], dict]


def take_turns(servers: Sequence[PeerServer], work: Workload, turns: int, measure_load: Measure = measure) -> list[Figures]:
    """The medians of each server, in their order. In each turn all servers get the same prompts; the first one is another.

    Raises: ValueError if a request failed or brought another number of tokens."""
    found: list[list[Figures]] = [[] for _ in servers]
    for turn in range(turns):
        for place in range(len(servers)):
            index = (place + turn) % len(servers)
            found[index].append(_take_turn(servers[index], work, turn, measure_load))
    return [_medians(of_one) for of_one in found]


def _take_turn(server: PeerServer, work: Workload, seed: int, measure_load: Measure) -> Figures:
    plan = work.plan(server.url, seed)
    before_s = processor_s(server.pid)
    result = measure_load(plan)
    used_s = processor_s(server.pid) - before_s
    n_tokens, expected = result["output_tokens"], (plan.requests or 0) * work.new_tokens
    if result["requests"]["errors"] or n_tokens != expected:
        raise ValueError(f"{server.name}: expected {expected} tokens, got {n_tokens} and errors {result['requests']['errors']}")
    first, later = result["ttft_ms"], result["tpot_ms"]
    return Figures(
        result["output_tokens_per_s"], first["p50"], first["p90"], later["p50"], later["p90"],
        used_s * 1e3 / n_tokens, memory_bytes(server.pid) / 2**20,
    )  # fmt: skip


def _medians(turns: Sequence[Figures]) -> Figures:
    return Figures(*(round(statistics.median(getattr(turn, one.name) for turn in turns), 2) for one in fields(Figures)))
