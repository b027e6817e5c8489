"""Prints how deep `make test-long` looks on this machine, as its TEST_DEPTH.

It is 3 where Python is as fast as on a present server, and less on a slower machine, where that depth would take hours.

python -m ops.test_depth
"""

from __future__ import annotations

import time

FULL_DEPTH, LEAST_DEPTH = 3, 2
_FULL_SPEED_S = 0.045  # of `_work`, where the depth is full
_ROUNDS = 5


def depth_of(took_s: float) -> int:
    """The depth for a machine on which `_work` takes so long."""
    return max(LEAST_DEPTH, min(FULL_DEPTH, round(FULL_DEPTH * _FULL_SPEED_S / took_s)))


def _work() -> float:
    """Do what takes longer on a slow machine; returns how long it took, in seconds."""
    began, total = time.perf_counter(), 0
    for number in range(1_000_000):
        total += number
    return time.perf_counter() - began


if __name__ == "__main__":
    print(depth_of(min(_work() for _ in range(_ROUNDS))))
