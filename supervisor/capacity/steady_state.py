"""A replica under a steady load: how many sequences run at once, how long tokens take, and the most that it carries. Pure.

A busy replica makes step after step. Of each second prompts take their part, and the steps of the rest give every running
sequence one token each. So the number of sequences that run is a fixed point: arrivals a second times the time that an answer
takes (Little, 1961), which itself grows with the number of sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.capacity.replica_times import ReplicaTimes
from supervisor.capacity.workload import OfferedLoad

_ROUNDS = 400
_NEAR = 1e-6
_PLANS_BEFORE = 1.5  # a prompt that comes waits for the plan that runs, and for half of the next, which is sent already


@dataclass(frozen=True)
class Steady:
    """A replica at its part of the load. Times are means, in seconds."""

    n_sequences: float  # that are being answered at once
    step_s: float  # of the device
    token_s: float  # between tokens of a stream, with the prompts of others in between
    first_token_s: float
    prompt_share: float  # of the time, for prompts
    is_overloaded: bool  # then the other fields are those of the most that it carries


@dataclass(frozen=True)
class ReplicaRoom:
    """What a replica holds at once. lease_s: how long a plan of several steps takes at the most."""

    n_sequences: int
    lease_s: float = 0.0


def most_rate_per_s(times: ReplicaTimes, load: OfferedLoad, room: ReplicaRoom) -> float:
    """Requests a second of this shape that a replica ends at most, with as many sequences at once as it holds."""
    n = max(room.n_sequences, 1)
    answer_s = load.output_tokens * times.step_s(n, load.mean_context_tokens) / n
    return 1.0 / (answer_s + times.prompt_s(load.prompt_tokens))


def steady_state(times: ReplicaTimes, load: OfferedLoad, room: ReplicaRoom) -> Steady:
    """The replica at this load, which is its own part of a server's."""
    most_per_s = most_rate_per_s(times, load, room)
    is_overloaded = load.rate_per_s >= most_per_s
    rate_per_s = min(load.rate_per_s, most_per_s)
    prompt_share = min(rate_per_s * times.prompt_s(load.prompt_tokens), 1.0 - _NEAR)
    n = float(room.n_sequences) if is_overloaded else _running(times, load, room, prompt_share)
    step_s = times.step_s(max(n, 1.0), load.mean_context_tokens)
    token_s = step_s / (1.0 - prompt_share)
    return Steady(n, step_s, token_s, _first_token_s(times, load, room, n, step_s), prompt_share, is_overloaded)


def _running(times: ReplicaTimes, load: OfferedLoad, room: ReplicaRoom, prompt_share: float) -> float:
    """Sequences at once: from none upwards to the first number that the arrivals sustain."""
    n = 0.0
    for _ in range(_ROUNDS):
        token_s = times.step_s(max(n, 1.0), load.mean_context_tokens) / (1.0 - prompt_share)
        after = min(load.rate_per_s * load.output_tokens * token_s, float(room.n_sequences))
        if after - n < _NEAR * max(after, 1.0):
            return after
        n = after
    return n


def _first_token_s(times: ReplicaTimes, load: OfferedLoad, room: ReplicaRoom, n: float, step_s: float) -> float:
    """Hops, the plans before it, the prompts before it (an M/D/1 queue), and the prompt itself. Waiting for a free place in a
    replica that is overloaded has no end, and is not in it."""
    own_s, alone_s = times.prompt_s(load.prompt_tokens), times.lone_prompt_s(load.prompt_tokens)
    busy = min(load.rate_per_s * own_s, 0.95)
    queue_s = busy * own_s / (2.0 * (1.0 - busy))
    plan_s = max(step_s, room.lease_s)
    return times.hop_s + min(n, 1.0) * _PLANS_BEFORE * plan_s + queue_s + alone_s
