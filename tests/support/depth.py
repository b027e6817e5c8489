"""How deep randomised tests look: TEST_DEPTH times a number that stands in each test. `make test` sets no TEST_DEPTH and looks
half as deep: few examples find most faults, and `make test-long` looks for the others."""

from __future__ import annotations

import os

from hypothesis import settings

DEPTH = int(os.environ.get("TEST_DEPTH", "1"))
_DEAR_DEPTH = min(DEPTH, 2)


def at_depth(count: int, depth: int = DEPTH) -> int:
    """How many examples or seeds are tried where a test says `count`: `depth` times as many, at depth 1 half of them."""
    return max(count // 2, 1) if depth == 1 else count * depth


def examples(count: int, stateful_step_count: int = 50) -> settings:
    """Settings of a property test with `at_depth(count)` examples, and no deadline, because test machines are busy."""
    return settings(max_examples=at_depth(count), stateful_step_count=stateful_step_count, deadline=None)


def dear_examples(count: int) -> settings:
    """As `examples`, for properties of which each example computes for long: never more than twice as many as `count`."""
    return settings(max_examples=at_depth(count, _DEAR_DEPTH), deadline=None)
