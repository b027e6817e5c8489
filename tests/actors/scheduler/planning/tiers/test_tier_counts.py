"""What the host tier counts of pages that have come back."""

from __future__ import annotations

import pytest

from actors.scheduler.planning.tiers.tier_counts import TierCounts


def test_loads_save_what_computing_would_have_taken_less_their_own_time() -> None:
    counts = TierCounts()
    counts.add_loads(10, 0.2, 1.5)
    counts.add_loads(2, 0.3, 0.1)  # slower than to compute
    assert (counts.loaded, counts.load_s) == (12, pytest.approx(0.5))
    assert counts.saved_s == pytest.approx(1.1)


def test_nothing_is_saved_as_long_as_the_time_of_prompts_is_not_known() -> None:
    counts = TierCounts()
    counts.add_loads(10, 0.2, 0.0)
    assert (counts.loaded, counts.saved_s) == (10, 0.0)
