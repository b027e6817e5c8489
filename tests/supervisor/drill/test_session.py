"""One call of `supervisor drill`."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.drill.run import DrillPlan
from supervisor.drill.session import DrillOptions, plan_of, title_of


def plan(rounds: int, streams: int) -> DrillPlan:
    """Of a drill with so many rounds and streams."""
    counts: dict[str, int] = {"rounds": rounds, "streams": streams, "prompt_words": 8, "max_tokens": 16, "seed": 0}
    nothing: dict[str, Any] = dict.fromkeys(("run_dir", "json_path", "svg_path"))
    texts = {"url": "http://127.0.0.1:1", "model": "", "api_key": ""}
    options = DrillOptions(**counts, **nothing, **texts, faults=("kill:worker",), deadline_s=9.0, ignore_eos=True)
    return plan_of(options)


@pytest.mark.parametrize(
    ("rounds", "streams", "said"),
    [(1, 1, "1 stream of 16 tokens, 1 round of each fault"), (5, 2, "2 streams of 16 tokens, 5 rounds of each fault")],
)
def test_the_title_counts_in_plain_english(rounds: int, streams: int, said: str) -> None:
    assert title_of(plan(rounds, streams), "m") == f"m at http://127.0.0.1:1: {said}"
