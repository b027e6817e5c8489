"""Response bodies in OpenAI's format. Streamed events are joined from JSON that is encoded once for each request. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from actors.gateway.http.errors import error_response, refusal_of
from actors.gateway.http.formats.format import EVENT_STREAM, PING, StreamWriter
from actors.gateway.http.formats.json_sizes import EMPTY_BYTES, json_sizes
from actors.gateway.http.formats.openai_logprobs import SPAN_TOKENS, echo_length, logprobs_json, whole_logprobs
from actors.gateway.http.formats.openai_message import FINISH, finish_reason, finish_with_calls, message_of
from actors.gateway.http.formats.prompt_logprobs import EchoedLogprobs, prompt_fields, token_ids
from actors.gateway.requests.best_of import shown_answers
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.requests.split_text import n_reasoning_tokens
from actors.gateway.requests.work_done import n_cached_of, work_of
from actors.gateway.text.models.text_model import TextModel

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n"


def usage_of(request: Request) -> dict[str, Any]:
    """The `usage` object. Tokens of a stop string are counted although they are not shown. It has details of drafts if the
    scheduler reported any, and of reasoning if the answer was searched for it."""
    n_prompt, n_generated = sum(request.n_prompt), request.n_generated if request.spec.has_answer else 0
    usage: dict[str, Any] = {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": n_cached_of(request)},
    }
    details: dict[str, int] = {}
    if (work := work_of(request)) is not None and work.n_drafted:
        rejected = work.n_drafted - work.n_accepted
        details |= {"accepted_prediction_tokens": work.n_accepted, "rejected_prediction_tokens": rejected}
    if request.spec.splitting is not None and request.spec.splitting.reasoning is not None:
        details["reasoning_tokens"] = n_reasoning_tokens(request)
    if details:
        usage["completion_tokens_details"] = details
    return usage


def head_of(spec: RequestSpec, kind: str, model_name: str) -> dict[str, Any]:
    """What every body and every event of an answer begins with. `kind`: of the object."""
    head = {"id": spec.id_in_answers, "object": kind, "created": int(spec.created_s), "model": model_name}
    return {**head, "system_fingerprint": spec.fingerprint} if spec.fingerprint else head


class ChunkWriter(StreamWriter):
    """Writes server-sent events: the `data:` line of each."""

    content_type, has_ids, ping = EVENT_STREAM, True, PING
    first_content = b'""'  # beside the role of an assistant

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        spec = request.spec
        self._request, self._model = request, model
        self._is_chat = spec.api == "chat"
        self._wants_logprobs = spec.sampling.logprobs >= 0
        self._is_plain = spec.has_answer and not (self._wants_logprobs or spec.with_token_ids)
        self._echoes_logprobs = bool(spec.echo) and self._wants_logprobs
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        head = head_of(spec, kind, model_name)
        self._head = b"data: " + _encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n' if spec.with_usage else b"]}\n"
        self._plain_token = b',"logprobs":null,"finish_reason":null}' + self._tail
        before = b'{"index":%d,"delta":{"content":' if self._is_chat else b'{"index":%d,"text":'
        # for each sequence: the number of tokens so far, and the length of the text so far, the echoed prompt included
        self._offsets = [(0, echo_length(sequence)) for sequence in request.sequences]
        self._before_text = [self._head + before % sequence.index for sequence in request.sequences]
        if self._is_chat:
            self._plain_token = b"}" + self._plain_token

    def openings(self) -> list[bytes]:
        """The assistant's role (chat) or the echoed prompt."""
        spec = self._request.spec
        if self._is_chat:
            delta = b'{"index":%d,"delta":{"role":"assistant","content":%b},"logprobs":null,"finish_reason":null}'
            tail = self._tail
            if spec.with_token_ids:
                tail = b'],"prompt_token_ids":' + _encode(spec.prompt_of(0).tolist()) + tail[1:]
            return [self._head + delta % (sequence.index, self.first_content) + tail for sequence in self._request.sequences]
        if spec.echo and not self._wants_logprobs:
            return [self._event(s.index, spec.echo[s.index // spec.n], b"null", b"null") for s in self._request.sequences]
        return []

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token; b"" if it adds no text, and neither its log-probability nor its id is asked for."""
        text = sequence.texts[number]
        if self._is_plain:
            return self._before_text[sequence.index] + _encode(text) + self._plain_token if text else b""
        spec = self._request.spec
        echo = spec.echo[sequence.index // spec.n] if self._echoes_logprobs and not number else ""
        text = echo + (text if spec.has_answer else "")
        if not (text or self._wants_logprobs or spec.with_token_ids):
            return b""
        logprobs = self._logprobs(sequence, number) if self._wants_logprobs else b"null"
        ids = b""
        if spec.with_token_ids:
            ids = token_ids(sequence, slice(number, number + 1), with_prompt=not (self._is_chat or number))
        return self._event(sequence.index, text, logprobs, b"null", ids)

    def tokens(self, sequence: GrowingSequence, first: int, stop: int) -> list[bytes]:
        if not self._is_plain:
            return [self.token(sequence, number) for number in range(first, stop)]
        before, after = self._before_text[sequence.index], self._plain_token
        return [before + _encode(text) + after if text else b"" for text in sequence.texts[first:stop]]

    def token_sizes(self, sequence: GrowingSequence, first: int, stop: int) -> np.ndarray | None:
        if not self._is_plain:
            return None
        n_plain = len(self._before_text[sequence.index]) + len(self._plain_token)
        sizes = json_sizes(sequence.texts[first:stop])
        return np.where(sizes > EMPTY_BYTES, n_plain + sizes, 0)

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The event of an ending, with the text that became certain by it; b"" for a failure without such a text."""
        ended = sequence.ended
        assert ended is not None
        spec = sequence.spec
        tail = sequence.tail if spec.has_answer else ""
        if ended.is_failure:
            return self._event(sequence.index, tail, b"null", b"null") if tail else b""
        return self._event(
            sequence.index,
            tail or None,
            b"null",
            FINISH[finish_reason(ended) if spec.has_answer else "length"],
            self.ids_of_ending,
        )

    @property
    def ids_of_ending(self) -> bytes:
        """What the event of an ending says of token ids, if they are asked for."""
        return b',"token_ids":[]' if self._request.spec.with_token_ids else b""

    def last(self, failure: Ended | None) -> list[bytes]:
        """The error, or the usage if it was asked for; then [DONE]."""
        if failure is not None:
            return [b"data: " + bytes(error_response(refusal_of(failure)).body) + b"\n", DONE]
        if not self._request.spec.with_usage:
            return [DONE]
        return [self._head + b'],"usage":' + _encode(usage_of(self._request)) + b"}\n", DONE]

    def _event(self, index: int, text: str | None, logprobs: bytes, finish: bytes, ids: bytes = b"") -> bytes:
        if self._is_chat:
            shown = b'"delta":{}' if text is None else b'"delta":{"content":' + _encode(text) + b"}"
        else:
            shown = b'"text":' + _encode(text or "")
        return self._event_with(index, shown, logprobs, finish, ids)

    def _event_with(self, index: int, shown: bytes, logprobs: bytes, finish: bytes, ids: bytes = b"") -> bytes:
        choice = b'{"index":%d,' % index + shown + b',"logprobs":' + logprobs + b',"finish_reason":' + finish + ids + b"}"
        return self._head + choice + self._tail

    def _logprobs(self, sequence: GrowingSequence, number: int) -> bytes:
        known, length = self._offsets[sequence.index]
        offset = length + sum(map(len, sequence.texts[known:number]))
        self._offsets[sequence.index] = (number, offset)
        some = logprobs_json(sequence, number, number + 1, self._model, is_chat=self._is_chat, offset=offset)
        if self._echoes_logprobs and not number:
            echoed = EchoedLogprobs(sequence, self._model)
            some = {name: [*values, *some[name]] for name, values in echoed.part(0, echoed.n_tokens).items()}
        return _encode(some)


def whole_body(request: Request, model_name: str, model: TextModel) -> Iterator[bytes]:
    """The JSON body of a request that is over, in pieces. After an empty piece the event loop should get a turn, so that a long
    body holds up nobody."""
    is_chat = request.spec.api == "chat"
    head = head_of(request.spec, "chat.completion" if is_chat else "text_completion", model_name)
    yield _encode(head)[:-1] + b',"choices":['
    for index, sequence in enumerate(shown_answers(request)):
        if index:
            yield b","
        yield from _choice(sequence, index, model, is_chat=is_chat)
    yield b"]"
    if is_chat:
        yield from prompt_fields(request.sequences[0], model, SPAN_TOKENS)
    yield b',"usage":' + _encode(usage_of(request)) + b"}"


def _choice(sequence: GrowingSequence, index: int, model: TextModel, *, is_chat: bool) -> Iterator[bytes]:
    assert sequence.ended is not None
    spec = sequence.spec
    text = "".join(sequence.texts) + sequence.tail if spec.has_answer else ""
    choice: dict[str, Any] = {"index": index}
    finish = finish_reason(sequence.ended)
    if spec.splitting is not None:
        choice["message"], n_calls = message_of(sequence)
        finish = finish_with_calls(sequence.ended, n_calls, spec)
    elif is_chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = (spec.echo[sequence.index // spec.n] if spec.echo else "") + text
    yield _encode(choice)[:-1] + b',"logprobs":'
    if spec.shows_logprobs:
        yield from whole_logprobs(sequence, model, is_chat=is_chat)
    else:
        yield b"null"
    yield b',"finish_reason":' + FINISH[finish if spec.has_answer else "length"]
    if spec.with_token_ids:
        yield token_ids(sequence, slice(0, None), with_prompt=False)
    if not is_chat:
        yield from prompt_fields(sequence, model, SPAN_TOKENS)
    yield b"}"
