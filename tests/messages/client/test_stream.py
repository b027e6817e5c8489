"""What the client makes of each message: tokens 0, 1, 2, ... once each, whatever is lost, repeated or said again."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages import public
from messages.client.stream import Next, StreamState
from messages.errors import DeadlineExceeded, InvalidRequest, Overloaded, Quarantined, RequestFailed, Unavailable
from messages.generation.logprobs import TokenLogprobs
from messages.wire.arrays import int32s

WHOLE = [100 + i for i in range(12)]


def new_state() -> StreamState:
    return StreamState(public.AnswersWanted(request="r", api="completion", body=b"{}"))


def chunk(first: int, stop: int, text: str | None = None) -> public.Chunk:
    ids = WHOLE[first:stop]
    return public.Chunk(request="r", first=first, ids=int32s(ids), text="".join(map(chr, ids)) if text is None else text)


def finished(n: int, reason: Any = "stop") -> public.Finished:
    return public.Finished(request="r", reason=reason, n_prompt=1, n_generated=n, n_cached=0)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30))
def test_any_cut_and_repeat_gives_each_token_once(cuts: list[tuple[int, int]]) -> None:
    state = new_state()
    for first, stop in cuts:
        before = len(state.tokens)
        next_step = state.handle(chunk(min(first, stop), max(first, stop), "" if first == stop else None))
        if min(first, stop) > before and first != stop:
            assert next_step is Next.RESEND
        assert state.tokens == WHOLE[: len(state.tokens)]
    assert state.asked().have == ([len(state.tokens)] if state.tokens else [])
    state.handle(chunk(len(state.tokens), 12)) if len(state.tokens) < 12 else None
    state.handle(finished(12))
    answer = state.answer()
    assert answer.tokens == WHOLE
    assert answer.text == "".join(map(chr, WHOLE))


def test_an_answer_has_the_log_probabilities_of_all_pieces_if_they_were_asked_for() -> None:
    state = StreamState(public.AnswersWanted(request="r", api="completion", body=b"{}"))
    values = np.arange(12, dtype="<f4")
    for first, stop in ((0, 5), (5, 6), (6, 12)):
        state.handle(msgspec.structs.replace(chunk(first, stop), logprobs=TokenLogprobs(chosen=values[first:stop])))
    state.handle(chunk(12, 12, "held back"))
    state.handle(finished(12))
    logprobs = state.answer().logprobs
    assert logprobs is not None
    assert logprobs.chosen.tolist() == values.tolist()
    plain = new_state()
    plain.handle(chunk(0, 12))
    plain.handle(finished(12))
    assert plain.answer().logprobs is None


def test_text_that_came_with_the_ending_is_shown_once() -> None:
    state = new_state()
    state.handle(chunk(0, 12))
    for _ in range(2):
        state.handle(chunk(12, 12, "held back"))
    state.handle(finished(12))
    assert state.answer().text.count("held back") == 1


def test_an_ending_beyond_the_known_tokens_is_not_believed() -> None:
    state = new_state()
    state.handle(chunk(0, 5))
    assert state.handle(finished(12)) is Next.RESEND
    assert not state.is_over


def test_nothing_counts_after_the_ending() -> None:
    state = new_state()
    state.handle(chunk(0, 12))
    assert state.handle(finished(12, "length")) is Next.END
    assert state.handle(chunk(12, 12, "late")) is Next.NOTHING
    assert state.handle(finished(12, "stop")) is Next.NOTHING
    assert state.answer().reason == "length"


def test_a_gateway_between_that_asked_for_too_much_is_asked_again() -> None:
    """It had passed on tokens that never came here, and the request's gateway has lost them."""
    state = new_state()
    refused = public.Failed(request="r", code="invalid", field="have", detail="expected at most 5, got 8")
    assert state.handle(refused) is Next.RESEND
    assert state.asked().have == []
    state.handle(chunk(0, 12))
    state.handle(finished(12))
    assert state.answer().tokens == WHOLE


def test_a_server_that_forgot_computes_again_and_is_compared() -> None:
    forgot = public.Failed(request="r", code="not_found", field="request", detail="unknown")
    state = new_state()
    state.handle(chunk(0, 5))
    assert state.handle(forgot) is Next.RESEND
    assert state.asked().have == []
    assert state.handle(chunk(0, 3)) is Next.NOTHING
    assert state.handle(chunk(3, 6)) is Next.RESEND
    assert state.asked().have == [5]
    state.handle(chunk(5, 12))
    state.handle(finished(12))
    assert state.answer().tokens == WHOLE

    lossy = new_state()
    lossy.handle(chunk(0, 5))
    lossy.handle(forgot)
    assert lossy.handle(chunk(2, 4)) is Next.RESEND, "a gap is no difference"
    assert lossy.asked().have == []
    assert lossy.handle(chunk(0, 5)) is Next.RESEND
    assert lossy.asked().have == [5]

    other = new_state()
    other.handle(chunk(0, 5))
    other.handle(forgot)
    other.handle(public.Chunk(request="r", first=0, ids=int32s([1, 2, 3]), text="abc"))
    with pytest.raises(RequestFailed, match="differs"):
        other.answer()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid", InvalidRequest),
        ("too_long", InvalidRequest),
        ("not_found", InvalidRequest),
        ("overloaded", Overloaded),
        ("unavailable", Unavailable),
        ("internal", RequestFailed),
        ("conflict", InvalidRequest),
        ("too_large", InvalidRequest),
        ("quarantined", Quarantined),
        ("deadline", DeadlineExceeded),
    ],
)
def test_refusals_are_typed(code: Any, kind: type[Exception]) -> None:
    state = new_state()
    failed = public.Failed(request="r", code=code, field="top_p", detail="top_p: no", retry_after_s=3.0)
    assert state.handle(failed) is Next.END
    with pytest.raises(kind) as caught:
        state.answer()
    if isinstance(caught.value, InvalidRequest):
        assert caught.value.field == "top_p"
        assert str(caught.value) == "top_p: no"
    if isinstance(caught.value, Overloaded):
        assert caught.value.retry_after_s == 3.0


def test_a_failed_ending_is_an_error() -> None:
    state = new_state()
    state.handle(public.Finished(request="r", reason="failed", n_prompt=1, n_generated=0, n_cached=0, detail="on fire"))
    with pytest.raises(RequestFailed, match="on fire"):
        state.answer()
    quarantined = new_state()
    quarantined.handle(finished(0, "quarantined"))
    with pytest.raises(Quarantined, match="the server could not finish the request"):
        quarantined.answer()


def test_pieces_and_answers_have_what_the_acceptance_says_of_the_load() -> None:
    for more, told in (({"degraded": "n=2", "queue_wait_ms": 1500}, ("n=2", 1500)), (dict[str, Any](), ("", 0))):
        state = new_state()
        state.handle(public.Accepted(request="r", n_prompt=1, **more))
        state.handle(chunk(0, 12))
        state.handle(finished(12))
        assert [(one.degraded, one.queue_wait_ms) for one in (state.answer(), *state.pieces)] == [told, told]


def test_a_forgotten_request_that_gets_fewer_answers_the_second_time_has_failed() -> None:
    state = new_state()
    state.handle(public.Accepted(request="r", n_prompt=1, n_answers=4))
    state.handle(chunk(0, 5))
    again = public.Accepted(request="r", n_prompt=1, n_answers=2, degraded="n=2")
    assert state.handle(again) is Next.END
    with pytest.raises(RequestFailed, match=r"expected 4 answers again, got 2 \(n=2\)"):
        state.answer()
