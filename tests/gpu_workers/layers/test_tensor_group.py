"""A collective of a CPU rank whose gang has lost another rank fails with an error of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_workers.engine import RankLost
from gpu_workers.layers.tensor_group import DistributedGroup
from tests.support.ranks.rank_pool import RankPool

DEADLINE_S = 60.0


def _rank(rank: int, folder: Path) -> list[str]:
    """What each call has raised, once the other rank has left the group."""
    group = DistributedGroup.join(rank, 2, folder / "rendezvous", torch.device("cpu"), DEADLINE_S)
    assert group.least(10 + rank) == 10
    if rank:
        group.close()
        return []
    calls = (lambda: group.all_reduce(torch.ones(4)), lambda: group.all_gather_last(torch.ones(4, 2)), lambda: group.least(1))
    raised = list[str]()
    for call in calls:
        with pytest.raises(RankLost) as caught:
            call()
        raised.append(str(caught.value))
    group.close()
    return raised


@pytest.mark.slow
def test_a_rank_says_that_another_one_is_lost(rank_pool: RankPool, tmp_path: Path) -> None:
    first, second = (rank.result(DEADLINE_S) for rank in rank_pool.start(2, _rank, tmp_path))
    assert second == []
    assert len(first) == 3
    assert all(text.startswith("another rank of the gang has ended: ") for text in first)
