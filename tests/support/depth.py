"""How deep randomised tests look: as deep as `make test` wants by default, TEST_DEPTH times as deep in `make test-long`."""

from __future__ import annotations

import os

from hypothesis import settings

DEPTH = int(os.environ.get("TEST_DEPTH", "1"))


def examples(count: int, stateful_step_count: int = 50) -> settings:
    """Settings of a property test: `count` examples at depth 1, and no deadline, because test machines are busy."""
    return settings(max_examples=count * DEPTH, stateful_step_count=stateful_step_count, deadline=None)
