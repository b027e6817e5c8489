"""`answer-hits` with real servers: times of hits, and processor time of misses at both servers."""

from __future__ import annotations

import pytest

from tests.support.load_tools import run_load_tool


@pytest.mark.long
def test_hits_are_measured_in_both_forms_and_misses_at_both_servers() -> None:
    found = run_load_tool("answer-hits", "--requests", "20", "--misses", "20", "--input", "16")
    for form in ("whole", "streamed"):
        hits = found["hits"][form]
        assert hits["at_client_ms"]["count"] == hits["in_gateway_ms"]["count"] == 20
        assert hits["at_client_ms"]["p50"] > hits["in_gateway_ms"]["p50"] > 0.0
        assert hits["gateway_cpu_ms"] > 0.0
    assert {name: len(turns) for name, turns in found["misses"].items()} == {"off": 10, "exact": 10}
    assert min(min(turns) for turns in found["misses"].values()) > 0.0
