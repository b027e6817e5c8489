"""The access log: one line for each request, whatever its ending and its API; none while it is off."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from messages.generation.sequences import Work
from tests.support.gateway.gateway_rig import rig

PLAIN, GENERATE = "/v1/completions", "/v1/generate"
WORK = Work(queue_s=0.001, prefill_s=0.25, decode_s=1.5)


def lines_of(log: list[Any]) -> list[dict[str, Any]]:
    return [line for line in log if line["event"] == "request"]


async def test_a_line_has_what_was_asked_and_what_it_took() -> None:
    with capture_logs() as log:
        async with rig() as r, r.http() as http:
            r.scheduler().work = WORK
            body = {"prompt": [1, 2, 3], "max_tokens": 5, "n": 2, "ignore_eos": True}
            answer = await http.post(PLAIN, json=body, headers={"X-Request-Id": "mine"})
            assert answer.status_code == 200
    (line,) = lines_of(log)
    assert line.pop("request") == answer.json()["id"]
    assert line.pop("total_ms") >= line.pop("first_token_ms") >= 0
    assert line == {
        "event": "request", "log_level": "info", "x_request_id": "mine", "model": "hash-chain", "api": "completion",
        "status": 200, "ending": "length", "prompt_tokens": 3, "output_tokens": 10, "queue_ms": 1.0, "prefill_ms": 250.0,
        "decode_ms": 1500.0,
    }  # fmt: skip


@pytest.mark.parametrize(("ending", "status"), [("failed", 500), ("quarantined", 422)])
async def test_a_failure_has_its_status(ending: Any, status: int) -> None:
    with capture_logs() as log:
        async with rig(with_scheduler=False) as r, r.http() as http:
            scheduler = await r.add_scheduler(is_automatic=False)
            call = asyncio.ensure_future(http.post(GENERATE, json={"prompt": "a"}))
            await r.cluster.wait_until(lambda: bool(scheduler.running))
            scheduler.fail(next(iter(scheduler.running)), reason=ending)
            assert (await call).status_code == status
    (line,) = lines_of(log)
    assert (line["status"], line["ending"], line["queue_ms"]) == (status, ending, None)


async def test_nothing_is_logged_while_it_is_off() -> None:
    with capture_logs() as log:
        async with rig(access_log=False) as r, r.http() as http:
            assert (await http.post(GENERATE, json={"prompt": "a", "max_tokens": 2})).status_code == 200
    assert lines_of(log) == []


@pytest.mark.parametrize("log_format", ["json", "console"])
async def test_lines_are_written_together_in_the_format_of_the_log(log_format: str) -> None:
    out = io.StringIO()
    renderer = structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
    with structlog_as(processors=[structlog.processors.add_log_level, renderer], out=out):
        async with rig() as r, r.http() as http:
            for name in ("one", "a blank"):
                body = {"tokens": [1, 2], "max_tokens": 2}
                assert (await http.post(GENERATE, json={**body, "request_id": name})).status_code == 200
    lines = [line for line in out.getvalue().splitlines() if "prompt_tokens" in line]
    if log_format == "json":
        assert [(one["event"], one["level"], one["request"]) for one in map(json.loads, lines)] == [
            ("request", "info", "one"), ("request", "info", "a blank")
        ]  # fmt: skip
    else:
        assert ["request=one model=hash-chain" in lines[0], "request='a blank' model=hash-chain" in lines[1]] == [True, True]
        assert all(line.startswith("[info     ] request") for line in lines)


@contextmanager
def structlog_as(*, processors: list[Any], out: io.StringIO) -> Iterator[None]:
    """structlog with these processors, into a text; as it was before, afterwards."""
    before = structlog.get_config()
    structlog.configure(processors=processors, logger_factory=structlog.PrintLoggerFactory(out))
    try:
        yield
    finally:
        structlog.configure(**before)
