"""Answers as Anthropic's Messages API gives them: named events, or one message. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from actors.gateway.http.errors import anthropic_error, refusal_of
from actors.gateway.http.formats.format import EVENT_STREAM, StreamWriter
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.requests.split_text import pieces_of
from actors.gateway.requests.tool_calls import ToolCall, call_id, calls_in, parts_of
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.pieces import Channel, TextPiece

_encode = msgspec.json.Encoder().encode
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":'
_BLOCK_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n'
_MESSAGE_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n'


class MessageEvents(StreamWriter):
    """Writes the events of one message, which has one block of text."""

    content_type, has_ids = EVENT_STREAM, True
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        self._request, self._model_name = request, model_name

    def openings(self) -> list[bytes]:
        """The message without content, and the beginning of its block."""
        usage = {"input_tokens": self._request.n_prompt[0], "output_tokens": 0}
        message = _message(self._request, self._model_name, [], None, None, usage)
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return [event_of({"type": "message_start", "message": message}), event_of(block)]

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token; b"" without text."""
        text = sequence.texts[number]
        return _DELTA + _encode(text) + b"}}\n" if text else b""

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The text that became certain by the ending, and the end of the block unless the request has failed."""
        ended = sequence.ended
        tail = _DELTA + _encode(sequence.tail) + b"}}\n" if sequence.tail else b""
        if ended is None or ended.is_failure:
            return tail
        return tail + b"\n" + _BLOCK_STOP if tail else _BLOCK_STOP

    def last(self, failure: Ended | None) -> list[bytes]:
        """The error, or why the message is over and its usage, and its end."""
        if failure is not None:
            refusal = refusal_of(failure)
            return [b"event: error\ndata: " + _encode(anthropic_error(refusal.status, refusal.detail)) + b"\n"]
        why, matched = _stop_of(self._request)
        delta = {"stop_reason": why, "stop_sequence": matched}
        return [event_of({"type": "message_delta", "delta": delta, "usage": _usage_of(self._request)}), _MESSAGE_STOP]


def message_body(request: Request, model_name: str, model: TextModel) -> Iterator[bytes]:
    """The message of a request that is over, in one piece."""
    sequence = request.sequences[0]
    parts = parts_of(pieces_of(sequence))
    content = [_block_of(sequence, part) for part in parts or [TextPiece(Channel.CONTENT, "")]]
    yield _encode(_message(request, model_name, content, *_stop_of(request), _usage_of(request)))


def signature_of(request: Request) -> str:
    """What a block of thinking is signed with. Clients send it back; nothing here needs it."""
    return b64encode(blake2b(request.spec.request.encode(), digest_size=24).digest()).decode()


def tool_block(sequence: GrowingSequence, call: ToolCall) -> dict[str, Any]:
    """A block that calls a tool. Of a call that was cut off it has the arguments that are whole."""
    block_id = call_id(sequence, call.number, "toolu_")
    return {"type": "tool_use", "id": block_id, "name": call.name, "input": call.input_so_far}


def _block_of(sequence: GrowingSequence, part: TextPiece | ToolCall) -> dict[str, Any]:
    if isinstance(part, ToolCall):
        return tool_block(sequence, part)
    if part.channel is Channel.REASONING:
        return {"type": "thinking", "thinking": part.text, "signature": signature_of(sequence.request)}
    return {"type": "text", "text": part.text}


def event_of(data: dict[str, Any]) -> bytes:
    """One event as its bytes."""
    return b"event: " + data["type"].encode() + b"\ndata: " + _encode(data) + b"\n"


def _message(
    request: Request, model_name: str, content: list[Any], why: str | None, matched: str | None, usage: dict[str, int]
) -> dict[str, Any]:
    return {
        "id": request.spec.id_in_answers,
        "type": "message",
        "role": "assistant",
        "model": model_name,
        "content": content,
        "stop_reason": why,
        "stop_sequence": matched,
        "usage": usage,
    }


def _stop_of(request: Request) -> tuple[str, str | None]:
    """Why a message is over, and the stop string that ended it."""
    sequence = request.sequences[0]
    if sequence.ended is not None and sequence.ended.reason == "length":
        return "max_tokens", None
    splitting, matched = request.spec.splitting, sequence.matched_stop
    if splitting is not None and splitting.tools is not None and calls_in(pieces_of(sequence))[1]:
        return "tool_use", None
    return ("stop_sequence", matched) if matched else ("end_turn", None)


def _usage_of(request: Request) -> dict[str, int]:
    """The usage. Prompt tokens that were cached are not counted among the input tokens."""
    n_prompt, ended = request.n_prompt[0], request.sequences[0].ended
    n_cached = min(ended.n_cached, n_prompt) if ended is not None else 0
    return {
        "input_tokens": n_prompt - n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "output_tokens": request.n_generated,
    }
