"""The parts of an answer as fields of OpenAI's message, or of a delta: content, reasoning, calls of tools. Pure."""

from __future__ import annotations

from typing import Any

from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.requests.split_text import pieces_of
from actors.gateway.requests.tool_calls import ToolCall, call_id, calls_in
from actors.gateway.text.pieces import Channel, TextPiece

_FIELDS = {
    Channel.CONTENT: ("content",),
    Channel.REASONING: ("reasoning_content", "reasoning"),  # vLLM's and DeepSeek's names
    Channel.NO_CALL: ("content",),  # a call that was cut off is shown: the client has a part of it already
}
FINISH = {reason: b'"' + reason.encode() + b'"' for reason in ("stop", "length", "tool_calls", "function_call")}


def finish_reason(ended: Ended) -> str:
    """OpenAI's `finish_reason` of an ending without calls: "length", or "stop" for every other one, a cancellation included."""
    return "length" if ended.reason == "length" else "stop"


def finish_with_calls(ended: Ended, n_calls: int, spec: RequestSpec) -> str:
    """As `finish_reason`, of an answer with this number of calls."""
    if not n_calls or ended.reason != "stop":
        return finish_reason(ended)
    return "function_call" if _takes_functions(spec) else "tool_calls"


def message_of(sequence: GrowingSequence) -> tuple[dict[str, Any], int]:
    """The message of a split answer that is over, and the number of its calls."""
    texts, calls = calls_in(pieces_of(sequence))
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else "", "refusal": None, **_texts(texts)}
    shown = [_call(sequence, call) for call in calls]
    if calls and _takes_functions(sequence.spec):
        message["function_call"] = shown[0]["function"]
    elif calls:
        message["tool_calls"] = shown
    return message, len(calls)


def delta_of(sequence: GrowingSequence, pieces: list[TextPiece], n_calls: int) -> dict[str, Any]:
    """The delta that shows these pieces. `n_calls`: how many calls have begun when they are read."""
    number = n_calls - sum(channel is Channel.CALL for channel, _ in pieces) - 1
    calls: list[dict[str, Any]] = []
    for channel, text in pieces:
        if channel is Channel.CALL:
            number += 1
            calls.append({"index": number, **_call(sequence, ToolCall(number, text))})
        elif channel is Channel.ARGUMENTS:
            if not calls:
                calls.append({"index": number, "function": {"arguments": ""}})
            calls[-1]["function"]["arguments"] += text
    delta = _texts(pieces)
    if not calls:
        return delta
    if _takes_functions(sequence.spec):
        return {**delta, "function_call": calls[0]["function"]}
    return {**delta, "tool_calls": calls}


def _call(sequence: GrowingSequence, call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call_id(sequence, call.number), "type": "function", "function": function}


def _texts(pieces: list[TextPiece]) -> dict[str, Any]:
    fields: dict[str, str] = {}
    for channel, text in pieces:
        for name in _FIELDS.get(channel, ()):
            fields[name] = fields.get(name, "") + text
    return fields


def _takes_functions(spec: RequestSpec) -> bool:
    rules = spec.splitting.tools if spec.splitting is not None else None
    return rules is not None and rules.is_function
