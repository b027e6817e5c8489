"""How deep randomised tests look: as deep as `make test` wants by default, TEST_DEPTH times as deep in `make test-long`."""

from __future__ import annotations

import os

from hypothesis import settings

DEPTH = int(os.environ.get("TEST_DEPTH", "1"))
_DEAR_DEPTH = min(DEPTH, 2)


def examples(count: int, stateful_step_count: int = 50) -> settings:
    """Settings of a property test: `count` examples at depth 1, and no deadline, because test machines are busy."""
    return settings(max_examples=count * DEPTH, stateful_step_count=stateful_step_count, deadline=None)


def dear_examples(count: int) -> settings:
    """As `examples`, for properties of which each example computes for long: never more than twice as many."""
    return settings(max_examples=count * _DEAR_DEPTH, deadline=None)
