"""JSON bodies of the answers of /v1/generate and /v1/batch: token ids, text, latency and speed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from actors.gateway.requests.request import GrowingSequence, Request

_encode = msgspec.json.Encoder().encode


def generate_body(request: Request) -> Iterator[bytes]:
    """The JSON answer to one prompt, in one piece, in two vocabularies: this server's, and the one of its design documents. The
    request must be over."""
    sequence, speed = _sequence(request.sequences[0]), _speed(request)
    yield _encode(
        {
            "request_id": request.spec.request,
            **sequence,
            **speed,
            "token_ids": sequence["tokens"],
            "prompt_tokens": sequence["n_prompt"],
            "generated_tokens": sequence["n_generated"],
            "latency_ms": round(speed["latency_s"] * 1e3, 3),
            "throughput_tokens_per_sec": speed["tokens_per_second"],
        }
    )


def batch_body(request: Request) -> Iterator[bytes]:
    """The JSON answer to several prompts, in their order: a piece for each of the `n` results for each prompt. The request must
    be over."""
    yield b'{"request_id":' + _encode(request.spec.request) + b',"results":['
    for sequence in request.sequences:
        result = _encode({"prompt_index": sequence.index // request.spec.n, **_sequence(sequence)})
        yield b"," + result if sequence.index else result
    speed = _speed(request)
    total = {
        "total_latency_ms": round(speed["latency_s"] * 1e3, 3),
        "batch_throughput_tokens_per_sec": speed["tokens_per_second"],
    }
    yield b"]," + _encode({**speed, **total})[1:]


def _sequence(sequence: GrowingSequence) -> dict[str, Any]:
    ended = sequence.ended
    assert ended is not None
    return {
        "tokens": sequence.ids,
        "text": "".join(sequence.texts) + sequence.tail,
        "finish_reason": ended.reason,
        "n_prompt": len(sequence.request.spec.prompt_of(sequence.index)),
        "n_generated": len(sequence.ids),
        "n_cached": ended.n_cached,
    }


def _speed(request: Request) -> dict[str, float]:
    latency_s = max(request.ended_s - request.began_s, 1e-9)
    first_s = request.first_token_s - request.began_s if request.first_token_s else latency_s
    return {
        "latency_s": round(latency_s, 6),
        "time_to_first_token_s": round(first_s, 6),
        "tokens_per_second": round(request.n_generated / latency_s, 3),
    }
