"""JSON bodies of the answers of /v1/generate and /v1/batch: token ids, text, latency and speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from actors.gateway.http.formats.openai_logprobs import whole_logprobs
from actors.gateway.http.formats.openai_message import message_of
from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.work_done import n_cached_at
from actors.gateway.text.models.text_model import TextModel

_encode = msgspec.json.Encoder().encode


def generate_body(request: Request, model: TextModel) -> Iterator[bytes]:
    """The JSON answer to one prompt, in pieces; after an empty one the event loop should get a turn. It has two vocabularies:
    this server's, and the one of its design documents. The request must be over."""
    yield _encode(_answer(request))[:-1]
    yield from _logprobs(request.sequences[0], model)
    yield b"}"


def requests_body(requests: Sequence[Request], models: ServedModels) -> Iterator[bytes]:
    """The JSON answer to a batch of requests, in their order, in pieces as those of `generate_body`. All must be over."""
    first = requests[0]
    yield b'{"request_id":' + _encode(first.spec.request) + b',"results":['
    for index, request in enumerate(requests):
        model = models.at(request.spec.model).text
        result = _encode({"index": index, **_answer(request), **_message(request.sequences[0])})[:-1]
        yield b"," + result if index else result
        yield from _logprobs(request.sequences[0], model)
        if request.spec.n > 1:
            yield from _choices(request, model)
        yield b"}"
    began_s, ended_s = min(one.began_s for one in requests), max(one.ended_s for one in requests)
    firsts = [one.first_token_s for one in requests if one.first_token_s]
    yield (
        b"]," + _encode(_total(_speed_of(began_s, min(firsts, default=0.0), ended_s, sum(r.n_generated for r in requests))))[1:]
    )


def batch_body(request: Request) -> Iterator[bytes]:
    """The JSON answer to several prompts, in their order: a piece for each of the `n` results for each prompt. The request must
    be over."""
    yield b'{"request_id":' + _encode(request.spec.request) + b',"results":['
    for sequence in request.sequences:
        result = _encode({"prompt_index": sequence.index // request.spec.n, **_sequence(sequence)})
        yield b"," + result if sequence.index else result
    yield b"]," + _encode(_total(_speed(request)))[1:]


def _choices(request: Request, model: TextModel) -> Iterator[bytes]:
    """The field with all `n` answers to one request of a batch, after a comma."""
    yield b',"choices":['
    for sequence in request.sequences:
        choice = {"index": sequence.index, **_sequence(sequence), "token_ids": sequence.ids, **_message(sequence)}
        yield (b"," if sequence.index else b"") + _encode(choice)[:-1]
        yield from _logprobs(sequence, model)
        yield b"}"
    yield b"]"


def _message(sequence: GrowingSequence) -> dict[str, Any]:
    """The field with the parts of a split answer, as in `/v1/chat/completions`; nothing for another one."""
    return {} if sequence.spec.splitting is None else {"message": message_of(sequence)[0]}


def _logprobs(sequence: GrowingSequence, model: TextModel) -> Iterator[bytes]:
    """The field with the log probabilities of an answer, after a comma; nothing where they are not asked for."""
    spec = sequence.spec
    if spec.shows_logprobs:
        yield b',"logprobs":'
        yield from whole_logprobs(sequence, model, is_chat=spec.api == "chat")


def _answer(request: Request) -> dict[str, Any]:
    """The fields of the first answer to a request, and the speed of all of them."""
    sequence, speed = _sequence(request.sequences[0]), _speed(request)
    return {
        "request_id": request.spec.request,
        **sequence,
        **speed,
        "token_ids": sequence["tokens"],
        "prompt_tokens": sequence["n_prompt"],
        "generated_tokens": sequence["n_generated"],
        "latency_ms": round(speed["latency_s"] * 1e3, 3),
        "throughput_tokens_per_sec": speed["tokens_per_second"],
    }


def _total(speed: dict[str, float]) -> dict[str, float]:
    """The speed of a batch, in both vocabularies."""
    return {
        **speed,
        "total_latency_ms": round(speed["latency_s"] * 1e3, 3),
        "batch_throughput_tokens_per_sec": speed["tokens_per_second"],
    }


def _sequence(sequence: GrowingSequence) -> dict[str, Any]:
    ended = sequence.ended
    assert ended is not None
    return {
        "tokens": sequence.ids,
        "text": "".join(sequence.texts) + sequence.tail,
        "finish_reason": ended.reason,
        "n_prompt": len(sequence.spec.prompt_of(sequence.index)),
        "n_generated": len(sequence.ids),
        "n_cached": n_cached_at(sequence),
    }


def _speed(request: Request) -> dict[str, float]:
    return _speed_of(request.began_s, request.first_token_s, request.ended_s, request.n_generated)


def _speed_of(began_s: float, first_token_s: float, ended_s: float, n_generated: int) -> dict[str, float]:
    """What a client is told of the speed of an answer, in s and tokens/s. `first_token_s`: 0 if no token has come."""
    latency_s = max(ended_s - began_s, 1e-9)
    first_s = first_token_s - began_s if first_token_s else latency_s
    return {
        "latency_s": round(latency_s, 6),
        "time_to_first_token_s": round(first_s, 6),
        "tokens_per_second": round(n_generated / latency_s, 3),
    }
