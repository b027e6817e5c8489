"""Where the time to a first token goes."""

from __future__ import annotations

from pathlib import Path

from ops.bench.returning.shares import first_token_shares, read_requests

_LINES = b"""no json
{"event": "host tier ready", "places": 3}
{"event": "request", "queue_ms": 1.0, "prefill_ms": 20.0, "first_token_ms": 23.0, "total_ms": 30.0}
{"event": "request", "queue_ms": 3.0, "prefill_ms": 24.0, "first_token_ms": 29.0, "status": 200}
{"event": "request", "queue_ms": 2.0, "prefill_ms": 22.0, "first_token_ms": 26.0}
{"event": "request", "queue_ms": null, "prefill_ms": null, "first_token_ms": null}
"""


def test_the_parts_make_up_the_whole(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(_LINES)
    logged = read_requests(log)
    assert len(logged) == 3
    shares = first_token_shares(logged, [0.027, 0.028, 0.031])
    assert shares == {"client_and_link": 2.0, "gateway": 2.0, "waits": 2.0, "computed": 22.0}


def test_what_was_logged_before_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(_LINES)
    assert read_requests(log, len(_LINES)) == []
    assert first_token_shares([], [0.1]) == {}
