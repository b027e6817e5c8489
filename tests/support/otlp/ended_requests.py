"""Records of ended requests, for tests."""

from __future__ import annotations

from typing import Any

from actors.gateway.tracing.ended_request import EndedRequest
from messages.generation.sampling import Sampling
from messages.generation.sequences import Work
from messages.wire.trace_context import TraceContext

BEGAN_S = 1_700_000_000.0
SPAN, PARENT = b"\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", b"\x11" * 8
_FIELDS: dict[str, Any] = {
    "trace_id": b"\x4b" * 16, "trace": TraceContext(parent_id=PARENT, is_sampled=True, state="a=b", span_id=SPAN),
    "began_s": BEGAN_S, "ended_s": BEGAN_S + 10.0, "first_token_s": BEGAN_S + 4.0,
    "work": Work(queue_s=1.0, prefill_s=2.0, decode_s=6.0), "api": "chat", "model": "m\u00fc \"x\"",
    "request": "r", "answer_id": "a",
    "x_request_id": "", "tenant": "", "gateway": "gateway/0", "scheduler": "scheduler/0", "ending": "length",
    "reasons": ["length"], "n_prompt": 3, "n_generated": 5, "n_cached": 0, "max_tokens": 5, "n": 1, "is_whole": False,
    "sampling": Sampling(seed=1), "cache_status": "", "is_fallback": False, "n_submissions": 1, "n_sequences": 1,
}  # fmt: skip


def ended(**fields: Any) -> EndedRequest:
    """A record of a request of ten seconds, with these fields instead of others."""
    return EndedRequest(**{**_FIELDS, **fields})
