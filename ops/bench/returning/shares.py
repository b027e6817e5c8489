"""Where the time to a first token goes, by the lines that a server logs of its requests. Pure but for reading the log.

    client asks | gateway | waits in the scheduler: its load | computed: from its slot to its first token | gateway | client

A sequence that runs ahead of its load waits for it on the device, which counts as computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from supervisor.bench.statistics import percentile

LOG_FLAGS = ["--log-format", "json", "--log-level", "info"]  # of a server whose log is read


class LoggedRequest(msgspec.Struct, frozen=True):
    """One request, in milliseconds. None: the request had no such time."""

    event: str = ""
    queue_ms: float | None = None
    prefill_ms: float | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    cache: str = ""  # how it was answered without being computed; "" if it was


def read_requests(log: Path, first_byte: int = 0) -> list[LoggedRequest]:
    """The requests of a log from this byte on that have had a first token. Other lines are skipped."""
    found: list[LoggedRequest] = []
    with log.open("rb") as lines:
        lines.seek(first_byte)
        for line in lines:
            try:
                one = msgspec.json.decode(line, type=LoggedRequest)
            except (msgspec.DecodeError, msgspec.ValidationError):
                continue
            if one.event == "request" and one.first_token_ms is not None:
                found.append(one)
    return found


def first_token_shares(logged: Sequence[LoggedRequest], first_s: Sequence[float]) -> dict[str, float]:
    """Medians in milliseconds of the parts of a first token; {} without a request. first_s: what the clients have measured."""
    whole = [one for one in logged if one.queue_ms is not None and one.prefill_ms is not None]
    if not whole or not first_s:
        return {}
    queue_ms, prefill_ms = (_median([getattr(one, name) for one in whole]) for name in ("queue_ms", "prefill_ms"))
    at_gateway_ms = _median([one.first_token_ms or 0.0 for one in whole])
    return {
        "client_and_link": round(_median(first_s) * 1e3 - at_gateway_ms, 2),
        "gateway": round(at_gateway_ms - queue_ms - prefill_ms, 2),
        "waits": round(queue_ms, 2),
        "computed": round(prefill_ms, 2),
    }


def _median(values: Sequence[float]) -> float:
    return percentile(sorted(values), 0.5)
