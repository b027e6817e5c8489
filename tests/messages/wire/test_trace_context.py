"""The headers of W3C Trace Context: what is valid is read, and what is not is ignored, as the standard demands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.wire.trace_context import trace_caller_of, traceparent_of

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
    caller = trace_caller_of(header)
    assert ("" if caller is None else caller.trace_id.hex()) == trace


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_the_lowest_flag_says_whether_the_caller_is_recorded(flags: str, is_sampled: bool) -> None:
    caller = trace_caller_of(f"00-{TRACE}-00f067aa0ba902b7-{flags}")
    assert caller is not None
    assert caller.context.is_sampled is is_sampled
    assert caller.context.parent_id.hex() == "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("state", "kept"), [("a=b,c=d", "a=b,c=d"), (" a=b ", "a=b"), ("a=\u00e9", ""), ("a=" + "b" * 511, "")]
)
def test_a_tracestate_is_passed_on_or_left_out(state: str, kept: str) -> None:
    caller = trace_caller_of(PARENT, state)
    assert caller is not None
    assert caller.context.state == kept


@given(st.binary(min_size=16, max_size=16).filter(any), st.binary(min_size=8, max_size=8).filter(any))
def test_a_written_header_is_read_again(trace_id: bytes, span_id: bytes) -> None:
    caller = trace_caller_of(traceparent_of(trace_id, span_id))
    assert caller is not None
    assert (caller.trace_id, caller.context.parent_id, caller.context.is_sampled) == (trace_id, span_id, True)
