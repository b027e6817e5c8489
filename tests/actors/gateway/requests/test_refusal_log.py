"""The log of refusals: a line for each refused request, with its id, status, code and field; and few of them in a flood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from actors.gateway.metrics import GatewayMetrics
from actors.gateway.requests.refusal_log import LINES_PER_S, RefusalLog
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.settings import GatewaySettings
from tests.support.gateway.gateway_rig import rig
from tests.support.waiting import DEADLINE_S

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}


def lines_of(log: list[Any]) -> list[dict[str, Any]]:
    return [line for line in log if line["event"].startswith("refused")]


async def test_a_line_has_id_status_code_and_field_and_no_words_of_the_prompt() -> None:
    with capture_logs() as log:
        async with rig() as r, r.http() as http:
            named = await http.post(CHAT, json=HI | {"n": 0}, headers={"Idempotency-Key": "k 1", "X-Request-Id": "mine"})
            assert named.status_code == 400
            minted = await http.post(CHAT, json=HI | {"messages": "secret"})
            correlated = await http.post(CHAT, json=HI | {"model": "gpt-4"}, headers={"X-Request-Id": "mine"})
            assert (await http.get("/v1/chat/completion")).status_code == 404
    common = {"event": "refused", "log_level": "info"}
    at = common | {"path": CHAT}
    assert lines_of(log) == [
        at | {"request": "k 1", "x_request_id": "mine", "status": 400, "code": "invalid", "field": "n"},
        at | {"request": minted.headers["x-request-id"], "status": 400, "code": "invalid", "field": "messages"},
        at | {"x_request_id": "mine", "status": 404, "code": "model_not_found", "field": "model"},
        common | {"path": "/v1/chat/completion", "status": 404, "code": "not_found"},
    ]
    assert correlated.headers["x-request-id"] == "mine"


async def test_a_refused_host_has_a_line_too() -> None:
    with capture_logs() as log:
        async with rig(with_socket=True) as r, httpx.AsyncClient(timeout=DEADLINE_S) as http:
            host, port = r.address
            assert (await http.get(f"http://{host}:{port}/live", headers={"Host": "evil.example"})).status_code == 403
    assert [(line["status"], line["code"], line["field"]) for line in lines_of(log)] == [(403, "host_not_allowed", "Host")]


async def test_no_line_while_the_log_of_requests_is_off() -> None:
    with capture_logs() as log:
        async with rig(access_log=False) as r, r.http() as http:
            assert (await http.post(CHAT, json={})).status_code == 400
    assert lines_of(log) == []


@pytest.mark.parametrize("n_refused", [1, LINES_PER_S, LINES_PER_S + 1, 1000])
def test_a_flood_has_a_few_lines_and_one_that_counts_the_others(n_refused: int) -> None:
    ends: list[Callable[[], None]] = []
    registry = CollectorRegistry()
    refusals = RefusalLog(GatewaySettings(), GatewayMetrics(registry).refused, lambda after_s, call: ends.append(call))
    for _ in range(2):  # the next second has lines again
        with capture_logs() as log:
            for _ in range(n_refused):
                refusals.note(Refusal("overloaded", "too many"), CHAT, "id")
            assert len(ends) == 1
            ends.pop()()
        *lines, last = lines_of(log)
        if n_refused <= LINES_PER_S:
            assert len(lines) + 1 == n_refused
        else:
            assert (len(lines), last["requests"]) == (LINES_PER_S, n_refused - LINES_PER_S)
    assert registry.get_sample_value("tardigrade_refused_total", {"code": "overloaded"}) == 2 * n_refused


def test_texts_of_clients_are_cut_and_cannot_begin_a_line() -> None:
    refusals = RefusalLog(GatewaySettings(), GatewayMetrics(CollectorRegistry()).refused, lambda after_s, call: None)
    with capture_logs() as log:
        refusals.note(invalid("a\nb\x1b" + "x" * 500, "one", 2), "zeromq", "é\n")
    assert log[0]["field"] == "a?b?" + "x" * 116
    assert log[0]["request"] == "??"
