"""A trace that a client brings goes with its request: in its terms, and in the envelope of every message about it."""

from __future__ import annotations

from tests.support.gateway.gateway_rig import rig

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


async def test_the_trace_reaches_the_scheduler() -> None:
    async with rig() as r, r.http() as http:
        body = {"prompt": [1, 2], "max_tokens": 2}
        for headers in ({"traceparent": PARENT}, {}, {"traceparent": "garbage"}):
            assert (await http.post("/v1/completions", json=body, headers=headers)).status_code == 200
        assert [submit.terms.trace_id.hex() for submit in r.scheduler().submits] == [TRACE, "", ""]
