"""Answers as Ollama gives them: a stream of JSON objects, one a line, or one object. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from actors.gateway.http.errors import ollama_error, refusal_of
from actors.gateway.http.formats.format import StreamWriter
from actors.gateway.http.formats.openai_logprobs import SPAN_TOKENS, logprobs_json
from actors.gateway.http.formats.openai_message import finish_reason
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.requests.split_text import SplitText, pieces_of
from actors.gateway.requests.tool_calls import calls_in
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.pieces import Channel, TextPiece

_encode = msgspec.json.Encoder().encode
_NS = 1e9


class LineWriter(StreamWriter):
    """Writes a line for each token with text, and a last one with counts and durations. A ping is a line with an empty text,
    because clients read every line as JSON.
    """

    content_type, has_ids = b"application/x-ndjson", False

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        self._request, self._model_name, self._model = request, model_name, model
        self._wants_logprobs = request.spec.shows_logprobs
        head = _encode(head_of(request.spec, model_name))[:-1]
        if request.spec.api == "ollama_chat":
            self._before, self._after = head + b',"message":{"role":"assistant","content":', b'},"done":false}'
        else:
            self._before, self._after = head + b',"response":', b',"done":false}'
        self.ping = self._line("") + b"\n"

    def openings(self) -> list[bytes]:
        """None: the first line is that of a token."""
        return []

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The line of one token; b"" without text, unless its log probability is asked for."""
        text = sequence.texts[number]
        if self._wants_logprobs:
            return self._with_logprobs(self._line(text), sequence, number)
        return self._line(text) if text else b""

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The line of the text that became certain by the ending."""
        return self._line(sequence.tail) if sequence.tail else b""

    def last(self, failure: Ended | None) -> list[bytes]:
        """The error, or the line that says why the answer is over."""
        if failure is not None:
            return [_encode(ollama_error(500, refusal_of(failure).detail))]
        return [_encode(_finished(self._request, self._model_name, []))]

    def _line(self, text: str) -> bytes:
        return self._before + _encode(text) + self._after

    def _with_logprobs(self, line: bytes, sequence: GrowingSequence, number: int) -> bytes:
        entries = _encode(logprobs_of(sequence, number, number + 1, self._model))
        return line[:-1] + b',"logprobs":' + entries + b"}"


class SplitLineWriter(LineWriter):
    """As `LineWriter`, with the reasoning in a field of its own, and calls of tools in another, each when it is complete."""

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        super().__init__(request, model_name, model)
        self._split = SplitText(request.sequences[0])
        self._head, self._is_chat = head_of(request.spec, model_name), request.spec.api == "ollama_chat"
        self._call: list[TextPiece] = []  # the pieces of the call that has begun

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The line of one token; b"" if it makes no text certain, no call complete, and has no log probability to show."""
        line = self._line_of(self._with_whole_calls(self._split.of_token(number)))
        return self._with_logprobs(line or self._line(""), sequence, number) if self._wants_logprobs else line

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The line of the text that became certain by the ending."""
        return self._line_of(self._with_whole_calls(self._split.of_ending()) + self._call)

    def _with_whole_calls(self, pieces: list[TextPiece]) -> list[TextPiece]:
        """The pieces before the call that has begun last. What comes after a call shows that it is complete."""
        ready: list[TextPiece] = []
        for piece in pieces:
            if piece.channel not in (Channel.ARGUMENTS, Channel.NO_CALL):
                ready += self._call
                self._call = []
            if piece.channel is Channel.CALL or self._call:
                self._call.append(piece)
            else:
                ready.append(piece)
        return ready

    def _line_of(self, pieces: list[TextPiece]) -> bytes:
        fields = shown(pieces, is_chat=self._is_chat) if pieces else {}
        return _encode({**self._head, **fields, "done": False}) if fields else b""


def line_writer(request: Request, model_name: str, model: TextModel) -> StreamWriter:
    """The writer of the stream of one request."""
    return (LineWriter if request.spec.splitting is None else SplitLineWriter)(request, model_name, model)


def shown(pieces: list[TextPiece], *, is_chat: bool) -> dict[str, Any]:
    """The fields with these pieces. The reasoning is `thinking`, beside the content; calls that were cut off are left out."""
    texts = dict.fromkeys(Channel, "")
    said, calls = calls_in(pieces)
    for channel, text in said:
        texts[channel] += text
    fields = content_of(texts[Channel.CONTENT], is_chat=is_chat)
    inside = fields["message"] if is_chat else fields
    if texts[Channel.REASONING]:
        inside["thinking"] = texts[Channel.REASONING]
    if functions := [{"name": call.name, "arguments": call.input} for call in calls if call.input is not None]:
        inside["tool_calls"] = [{"function": function} for function in functions]
    return fields


def pull_lines() -> list[bytes]:
    """What a client that pulls a model gets, line by line, if the model is here."""
    return [_encode({"status": status}) + b"\n" for status in ("pulling manifest", "verifying sha256 digest", "success")]


def ollama_body(request: Request, model_name: str, model: TextModel) -> Iterator[bytes]:
    """The JSON object of a request that is over, in one piece; in several with log probabilities, with an empty piece after
    each span of tokens."""
    sequence = request.sequences[0]
    found = _encode(_finished(request, model_name, pieces_of(sequence)))
    if not request.spec.shows_logprobs:
        yield found
        return
    yield found[:-1] + b',"logprobs":['
    for first in range(0, len(sequence.ids), SPAN_TOKENS):
        yield b"," * bool(first) + _encode(logprobs_of(sequence, first, first + SPAN_TOKENS, model))[1:-1]
        yield b""
    yield b"]}"


def logprobs_of(sequence: GrowingSequence, first: int, stop: int, model: TextModel) -> list[dict[str, Any]]:
    """An entry for each of the tokens first .. stop - 1, as OpenAI has it. Ollama leaves out an empty list of alternatives."""
    entries = logprobs_json(sequence, first, stop, model, is_chat=True, offset=0)["content"]
    return [{name: value for name, value in entry.items() if value or name != "top_logprobs"} for entry in entries]


def head_of(spec: RequestSpec, model_name: str) -> dict[str, Any]:
    """What every object begins with. The time is that of the request, so that a later process writes the same bytes."""
    return {"model": model_name, "created_at": time_text(spec.created_s)}


def time_text(unix_s: float) -> str:
    """Unix time as RFC 3339 has it, in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def content_of(text: str, *, is_chat: bool) -> dict[str, Any]:
    """The field with a text."""
    return {"message": {"role": "assistant", "content": text}} if is_chat else {"response": text}


def _finished(request: Request, model_name: str, pieces: list[TextPiece]) -> dict[str, Any]:
    """The object of an answer that is over. Its durations are those that the journal has."""
    spec, sequence = request.spec, request.sequences[0]
    ended = sequence.ended
    assert ended is not None, "the request is over"
    is_chat = spec.api == "ollama_chat"
    all_ns, first_ns = int(ended.lasted_s * _NS), int((ended.first_token_s or ended.lasted_s) * _NS)
    found = {
        **head_of(spec, model_name),
        **shown(pieces, is_chat=is_chat),
        "done": True,
        "done_reason": finish_reason(ended),
        "total_duration": all_ns,
        "load_duration": 0,
        "prompt_eval_count": request.n_prompt[0],
        "prompt_eval_duration": first_ns,
        "eval_count": len(sequence.ids),
        "eval_duration": all_ns - first_ns,
    }
    if not is_chat:
        found["context"] = [*spec.prompt_of(0).tolist(), *sequence.ids]
    return found
