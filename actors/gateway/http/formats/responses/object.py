"""The object that /v1/responses answers with, as OpenAI's Responses API has it, and its items. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import msgspec

from actors.gateway.http.errors import refusal_of
from actors.gateway.http.formats.openai_logprobs import SPAN_TOKENS
from actors.gateway.http.formats.responses.output import OutputWalk, logprobs_of
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.requests.split_text import n_reasoning_tokens
from actors.gateway.text.models.text_model import TextModel

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def response_body(request: Request, model_name: str, model: TextModel) -> Iterator[bytes]:
    """The JSON of a response as it is now. An empty piece comes after each span of tokens, so that a long answer with log
    probabilities holds up nobody."""
    output = None
    if request.is_over and request.sequences[0].wants_logprobs:
        output = yield from _output_in_spans(request, model)
    yield _encode(response_object(request, model_name, model, output))


def _output_in_spans(request: Request, model: TextModel) -> Generator[bytes, None, list[dict[str, Any]]]:
    """Yields an empty piece after each span of tokens and returns the items."""
    sequence = request.sequences[0]
    starts = range(0, len(sequence.ids), SPAN_TOKENS)
    if request.spec.splitting is not None:
        walk = OutputWalk(sequence, model)
        for start in starts[1:]:
            walk.of_token(start - 1)
            yield b""
        return walk.whole_output()
    known: list[msgspec.Raw] = []
    for start in starts:
        known += logprobs_of(sequence, start, min(start + SPAN_TOKENS, len(sequence.ids)), model)
        yield b""
    return [message_item(request, model, known)]


def response_object(
    request: Request, model_name: str, model: TextModel, output: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A response as it is now: without output while it runs. `output`: its items if they are known."""
    sequence = request.sequences[0]
    if not request.is_over or sequence.ended is None:
        return begun_object(request, model_name)
    ended = sequence.ended
    found = begun_object(request, model_name) | {"status": status_of(ended), "usage": _usage_of(request)}
    if ended.is_failure:
        found["error"] = {"code": "server_error", "message": refusal_of(ended).detail}
    elif ended.reason == "length":
        found["incomplete_details"] = {"reason": "max_output_tokens"}
    if not ended.is_failure or sequence.ids:
        found["output"] = output_of(request, model) if output is None else output
    return found


def begun_object(request: Request, model_name: str) -> dict[str, Any]:
    """A response that has begun, before its first token."""
    spec = request.spec
    assert spec.response is not None, "it is a request of /v1/responses"
    return {
        "id": spec.id_in_answers,
        "object": "response",
        "created_at": int(spec.created_s),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model_name,
        "output": [],
        "temperature": spec.sampling.temperature,
        "top_p": spec.sampling.top_p,
        "top_logprobs": max(spec.sampling.logprobs, 0),
        "usage": None,
        "service_tier": "default",
        "background": spec.is_background,
        "store": spec.is_stored,
        **_decode(spec.response.shown),
    }


def output_of(request: Request, model: TextModel) -> list[dict[str, Any]]:
    """The items of a response that is over. One that is not split has its message alone."""
    is_split = request.spec.splitting is not None
    return OutputWalk(request.sequences[0], model).whole_output() if is_split else [message_item(request, model)]


def told_output(request: Request, model: TextModel) -> list[dict[str, Any]]:
    """The items of a response that is over as the conversation has them that goes on from it: without log probabilities, which
    no model reads, and which every later response would keep."""
    sequence = request.sequences[0]
    if request.spec.splitting is not None:
        return OutputWalk(sequence, model, with_logprobs=False).whole_output()
    return [_message_item(request, [])]


def message_item(request: Request, model: TextModel, known: Sequence[msgspec.Raw] = ()) -> dict[str, Any]:
    """The item with the text of a response that is over. `known`: the log probabilities of its first tokens."""
    sequence = request.sequences[0]
    return _message_item(request, [*known, *logprobs_of(sequence, len(known), len(sequence.ids), model)])


def _message_item(request: Request, logprobs: list[msgspec.Raw]) -> dict[str, Any]:
    sequence = request.sequences[0]
    assert sequence.ended is not None, "the response is over"
    status = "completed" if sequence.ended.reason == "stop" else "incomplete"
    text = "".join(sequence.texts) + sequence.tail
    part = {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": text}
    return message_of(request, status, [part])


def message_of(request: Request, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    """The item of the assistant's message."""
    return {"id": item_id(request), "type": "message", "status": status, "role": "assistant", "content": content}


def item_id(request: Request) -> str:
    """The id of the message in a response."""
    return "msg_" + request.spec.request.removeprefix("resp_")


def status_of(ended: Ended) -> str:
    """The status of a response that is over."""
    if ended.is_failure:
        return "failed"
    return {"length": "incomplete", "cancelled": "cancelled"}.get(ended.reason, "completed")


def _usage_of(request: Request) -> dict[str, Any]:
    n_prompt, ended = request.n_prompt[0], request.sequences[0].ended
    n_cached = min(ended.n_cached, n_prompt) if ended is not None else 0
    return {
        "input_tokens": n_prompt,
        "input_tokens_details": {"cached_tokens": n_cached, "cache_write_tokens": 0},
        "output_tokens": request.n_generated,
        "output_tokens_details": {"reasoning_tokens": n_reasoning_tokens(request)},
        "total_tokens": n_prompt + request.n_generated,
    }
