"""Accepted draft tokens by their position add up to all of them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from actors.scheduler.sequences.draft_metrics import AcceptedByPosition

_NAME = "tardigrade_scheduler_accepted_draft_positions_total"


def counted(*accepted: int) -> dict[int, float]:
    """The counts by position after drafts with so many accepted tokens."""
    registry, positions = CollectorRegistry(), AcceptedByPosition()
    registry.register(positions)
    for n_accepted in accepted:
        positions.count(n_accepted)
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert {sample.name for sample in samples} <= {_NAME}
    return {int(sample.labels["position"]): sample.value for sample in samples}


def test_a_draft_counts_at_each_position_up_to_its_first_wrong_token() -> None:
    assert counted(0, 1, 3, 3) == {0: 3, 1: 2, 2: 2}
    assert counted() == counted(0) == {}


def test_what_is_longer_than_all_positions_counts_at_the_last_one() -> None:
    found = counted(70, 64)
    assert (sum(found.values()), found[63], max(found)) == (134, 8, 63)
