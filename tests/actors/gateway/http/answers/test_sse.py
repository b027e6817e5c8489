"""Answers over ASGI, driven without a server: what is sent when tokens become visible, nobody speaks, or the client leaves."""

from __future__ import annotations

import asyncio
import json

import pytest

from actors.gateway.http.answers import sse
from actors.gateway.requests.request_spec import Ended
from tests.support.gateway.asgi_exchange import (
    LENGTH,
    NEVER_S,
    PING,
    exchange,
    request_of,
    show,
)

# -- streams ----------------------------------------------------------------------------------------------------------


async def test_each_token_is_an_event_and_the_stream_ends_with_done() -> None:
    request = request_of()
    async with exchange(request) as one:
        show(request, 5)
        await one.wait_until(lambda: one.texts == ["5 "])
        show(request, 6, 7)
        await one.wait_until(lambda: one.texts == ["5 ", "6 ", "7 "])
        show(request, 8, ended=LENGTH)
    assert one.texts == ["5 ", "6 ", "7 ", "8 "]
    assert [event["choices"][0]["finish_reason"] for event in one.events] == [None, None, None, None, "length"]
    assert one.bodies[-1] == b"data: [DONE]\n\n"
    assert [message.get("more_body", False) for message in one.sent[1:]] == [True] * (len(one.sent) - 2) + [False]
    assert one.is_delivered


async def test_headers_are_those_of_an_event_stream_that_no_proxy_keeps_back() -> None:
    request = request_of()
    show(request, 5, ended=LENGTH)
    async with exchange(request) as one:
        pass
    assert one.status == 200
    assert one.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "x-request-id": "r",
        "date": "Thu, 01 Jan 1970 00:00:00 GMT",  # that of the request
    }


async def test_what_gathers_before_the_client_is_served_is_cut_into_the_same_events() -> None:
    request = request_of()
    for token in range(5):
        show(request, token)
    show(request, ended=LENGTH)
    async with exchange(request) as one:
        pass
    assert one.texts == ["0 ", "1 ", "2 ", "3 ", "4 "]


async def test_a_chat_begins_with_the_role_before_any_token_and_ends_with_usage() -> None:
    request = request_of(api="chat", with_usage=True)
    async with exchange(request) as one:
        await one.wait_until(lambda: len(one.bodies) == 1)
        assert one.events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        show(request, 5, 6, ended=LENGTH)
    assert one.events[-1]["choices"] == []
    assert one.events[-1]["usage"]["completion_tokens"] == 2
    assert one.bodies[-1].endswith(b"data: [DONE]\n\n")


async def test_the_hold_is_told_of_a_run_when_its_first_event_is_about_to_be_written() -> None:
    """Earlier the run may not be in the journal, and a run that the journal does not have ends a connection."""
    request = request_of(n=2, is_resumable=True)
    show(request, 5)
    request.begin_run(0.0, 3)
    async with exchange(request) as one:
        await one.wait_until(lambda: one.texts == ["5 "])
        await one.wait_idle()
        assert {run for run, _ in one.hold.runs} == {0}
        n_sent = len(one.sent)
        show(request, 6, index=1)
        await one.wait_until(lambda: one.texts == ["5 ", "6 "])
        assert one.hold.runs[1:] == [(3, n_sent)]
        show(request, 7, ended=LENGTH)
        show(request, 8, index=1, ended=LENGTH)
    assert one.hold.runs[1:] == [(3, n_sent)], "it is told once"


async def test_a_ping_belongs_to_the_run_in_which_it_is_shown() -> None:
    request = request_of(n=2, is_resumable=True)
    request.begin_run(0.0, 3)
    async with exchange(request, ping_s=0.0) as one:
        await one.wait_until(lambda: PING in one.bodies)
        assert one.hold.runs[1:] == [(3, 1)]
        show(request, ended=LENGTH)
        show(request, index=1, ended=LENGTH)


async def test_sequences_of_one_request_end_one_by_one() -> None:
    request = request_of(n=2)
    async with exchange(request) as one:
        show(request, 5, index=1, ended=LENGTH)
        await one.wait_until(lambda: one.texts == ["5 "])
        await one.wait_idle()
        assert not one.task.done()
        show(request, 6, index=0, ended=LENGTH)
    choices = [choice for event in one.events for choice in event["choices"]]
    assert [(c["index"], c["text"], c["finish_reason"]) for c in choices] == [
        (1, "5 ", None),
        (1, "", "length"),
        (0, "6 ", None),
        (0, "", "length"),
    ]


async def test_no_status_is_sent_before_the_request_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_SETTLE_S", 0.0)
    request = request_of(is_recorded=False, is_taken=False)
    async with exchange(request) as one:
        await one.wait_idle()
        assert one.sent == []
        request.is_recorded = True
        request.wake()
        await one.wait_until(lambda: len(one.sent) > 0)
        assert one.status == 200
        show(request, 5, ended=LENGTH)


async def test_a_recorded_request_gets_its_status_though_no_scheduler_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_SETTLE_S", 0.001)
    request = request_of(is_taken=False)
    async with exchange(request) as one:
        await one.wait_until(lambda: len(one.sent) == 1)
        assert one.status == 200
        show(request, 5, ended=LENGTH)


async def test_a_silent_stream_gets_comments_and_then_goes_on() -> None:
    request = request_of()
    async with exchange(request, ping_s=0.001) as one:
        show(request, 5)
        await one.wait_until(lambda: one.bodies.count(PING) >= 3)
        n_before = len(one.bodies)
        show(request, 6)
        await one.wait_until(lambda: one.texts == ["5 ", "6 "])
        await one.wait_until(lambda: PING in one.bodies[n_before + 1 :])
        show(request, 7, ended=LENGTH)
    assert one.texts == ["5 ", "6 ", "7 "]
    assert set(one.bodies) - {PING} == {body for body in one.bodies if body.startswith(b"data: ")}


async def test_tokens_keep_a_stream_free_of_comments() -> None:
    request = request_of()
    async with exchange(request, ping_s=NEVER_S) as one:
        for token in range(20):
            show(request, token)
            await one.wait_until(lambda token=token: "".join(one.texts).endswith(f"{token} "))
        show(request, ended=LENGTH)
    assert PING not in one.bodies


# -- clients that leave -----------------------------------------------------------------------------------------------


async def test_a_client_that_hangs_up_in_mid_stream_is_sent_nothing_more() -> None:
    request = request_of()
    async with exchange(request) as one:
        show(request, 5)
        await one.wait_until(lambda: one.texts == ["5 "])
        n_sent = len(one.sent)
        one.disconnect()
        await one.wait_done()
        show(request, 6)
        assert len(one.sent) == n_sent
    assert not one.is_delivered, "a drain may still wait for it to come back"


async def test_a_client_that_hangs_up_during_silence_gets_no_comment() -> None:
    request = request_of()
    async with exchange(request, ping_s=NEVER_S) as one:
        await one.wait_until(lambda: len(one.sent) == 1)
        one.disconnect()
    assert one.bodies == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_before_the_request_is_recorded_ends_the_wait(stream: bool) -> None:
    request = request_of(is_recorded=False, is_taken=False)
    async with exchange(request, stream=stream) as one:
        await one.wait_idle()
        one.disconnect()
    assert one.bodies == []
    assert not one.is_delivered


async def test_a_connection_that_breaks_while_sending_is_a_client_that_left() -> None:
    request = request_of()
    async with exchange(request) as one:
        show(request, 5)
        await one.wait_until(lambda: one.texts == ["5 "])
        one.error = OSError("connection reset")
        show(request, 6, ended=LENGTH)
    assert one.texts == ["5 "]
    assert not one.is_delivered


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_outlasts_every_deadline_ends(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_SLOW_CLIENT_S", 0.001)
    async with exchange(request_of(), longest_s=0.0, stream=stream) as one:
        pass
    assert one.bodies == []
    assert not one.is_delivered


async def test_an_error_of_the_writer_is_raised_and_still_leaves_the_manager_informed() -> None:
    """The context manager asserts that the reader is closed and that the request manager was told."""
    request = request_of()
    async with exchange(request) as one:
        show(request, 5)
        await one.wait_until(lambda: one.texts == ["5 "])
        one.error = RuntimeError("a bug")
        show(request, 6)
        with pytest.raises(RuntimeError, match="a bug"):
            await one.wait_done()
        one.task = asyncio.ensure_future(asyncio.sleep(0))


# -- failures ---------------------------------------------------------------------------------------------------------

FAILED = Ended(reason="failed", code="internal", detail="it broke")


async def test_a_failure_before_the_first_token_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_SETTLE_S", NEVER_S)
    request = request_of(is_taken=False)
    async with exchange(request) as one:
        await one.wait_idle()
        show(request, ended=FAILED)
    assert one.status == 500
    assert one.headers["x-request-id"] == "r"
    assert json.loads(b"".join(one.bodies))["error"]["message"] == "it broke"


async def test_a_failure_in_mid_stream_is_an_error_event_before_done() -> None:
    request = request_of(n=2)
    async with exchange(request) as one:
        show(request, 5)
        await one.wait_until(lambda: one.texts == ["5 "])
        show(request, 6, ended=LENGTH)
        show(request, index=1, ended=FAILED)
    assert one.status == 200
    events = b"".join(one.bodies).split(b"\n\n")
    assert json.loads(events[-3].removeprefix(b"data: "))["error"]["message"] == "it broke"
    assert events[-2:] == [b"data: [DONE]", b""]
    reasons = [choice["finish_reason"] for event in one.events if "choices" in event for choice in event["choices"]]
    assert reasons == [None, None, "length"], "the failed sequence has no finish_reason"


# -- whole answers ----------------------------------------------------------------------------------------------------


async def test_a_whole_answer_waits_for_the_last_sequence() -> None:
    request = request_of(n=2)
    async with exchange(request, stream=False) as one:
        show(request, 5, index=1, ended=LENGTH)
        await one.wait_idle()
        assert one.sent == []
        show(request, 6, ended=LENGTH)
    assert (one.status, b"".join(one.bodies)) == (200, b'{"whole": true}')
    assert one.headers["x-request-id"] == "r"
    assert one.is_delivered


@pytest.mark.parametrize(
    ("ended", "status", "code"),
    [(FAILED, 500, "internal_error"), (Ended(reason="cancelled", detail="client_left"), 499, "cancelled")],
)
async def test_a_whole_answer_without_a_success_is_an_error(ended: Ended, status: int, code: str) -> None:
    request = request_of(n=2)
    async with exchange(request, stream=False) as one:
        show(request, 5, ended=LENGTH)
        show(request, index=1, ended=ended)
    assert one.status == status
    assert json.loads(b"".join(one.bodies))["error"]["code"] == code
