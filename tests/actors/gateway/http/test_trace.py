"""A trace that a client brings goes with its request: in its terms, and in the envelope of every message about it."""

from __future__ import annotations

import pytest

from actors.gateway.http.endpoint import trace_id_of
from tests.support.gateway.gateway_rig import rig

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (PARENT, TRACE),
        (f"  {PARENT} ", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-what-the-future-will-be-like", TRACE),
        ("", ""),
        ("00", ""),
        (f"00-{TRACE}", ""),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", ""),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{'x' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE[:-1]}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", ""),
        ("00-ab cd ef 01 23 45 67 89 ab cd e-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE[:30]}  -00f067aa0ba902b7-01", ""),
        (f"00-{TRACE[:-1]}\u0663-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE}-short-01", ""),
        (f"00-{TRACE}-00f067aa0ba902b7-1", ""),
        (f"0-{TRACE}-00f067aa0ba902b7-01", ""),
        (f"{PARENT}-more", ""),
        (f"cc-{TRACE}-00f067aa0ba902b7-01more", ""),
    ],
)
def test_a_traceparent_is_read_or_ignored(header: str, trace: str) -> None:
    assert trace_id_of(header).hex() == trace


async def test_the_trace_reaches_the_scheduler() -> None:
    async with rig() as r, r.http() as http:
        body = {"prompt": [1, 2], "max_tokens": 2}
        for headers in ({"traceparent": PARENT}, {}, {"traceparent": "garbage"}):
            assert (await http.post("/v1/completions", json=body, headers=headers)).status_code == 200
        assert [submit.terms.trace_id.hex() for submit in r.scheduler().submits] == [TRACE, "", ""]
