"""`watch-cost` with real servers: each kind has its turns."""

from __future__ import annotations

import pytest

from tests.support.load_tools import run_load_tool


@pytest.mark.long
def test_all_kinds_have_their_turns_and_the_watched_ones_are_watched() -> None:
    sizes = ("--rounds", "2", "--round-s", "0.01", "--each", "2", "--concurrency", "2", "--input", "8", "--output", "4")
    found = run_load_tool("watch-cost", "--model", "hash-chain", *sizes)["models"]["hash-chain"]
    assert found["requests_of_a_round"] % 2 == 0
    assert found["scrapes"] >= 4  # one before each turn of two servers
    assert found["page_events"] >= 4
    for figure in (found["tokens_per_s"], found["cpu_us"]):
        assert {kind: [len(one) for one in row] for kind, row in figure["rounds"].items()} == {
            kind: [2, 2] for kind in ("off", "default", "watched")
        }
        assert set(figure["ratios"]) == {"default / off", "watched / default", "watched / off"}
        assert all(one > 0.0 for row in figure["rounds"].values() for rounds in row for one in rounds)
