"""How deep randomised tests look: TEST_DEPTH times a number that stands in each test. `make test` sets no TEST_DEPTH and looks
a quarter as deep: few examples find most faults, and `make test-long`, whose depth is at least 2, looks for the others."""

from __future__ import annotations

import os

from hypothesis import settings

DEPTH = int(os.environ.get("TEST_DEPTH", "1"))
_DEAR_DEPTH = min(DEPTH, 2)


def at_depth(count: int, depth: int = DEPTH) -> int:
    """How many examples or seeds are tried where a test says `count`: `depth` times as many, at depth 1 a quarter.

    At depth 1 there are still two where `count` is 4 or more: the first two seeds often differ in kind.
    """
    return max(count // 4, min(count // 2, 2), 1) if depth == 1 else count * depth


def seeds_of_block(block: int, count: int) -> range:
    """The seeds of one of several equal tests: `count` of them, at depth 1 half of these."""
    first = block * count
    return range(first, first + (count if DEPTH > 1 else max(count // 2, 1)))


def examples(count: int, stateful_step_count: int = 50) -> settings:
    """Settings of a property test with `at_depth(count)` examples, and no deadline, because test machines are busy."""
    return settings(max_examples=at_depth(count), stateful_step_count=stateful_step_count, deadline=None)


def dear_examples(count: int) -> settings:
    """As `examples`, for properties of which each example computes for long: never more than twice as many as `count`."""
    return settings(max_examples=at_depth(count, _DEAR_DEPTH), deadline=None)
