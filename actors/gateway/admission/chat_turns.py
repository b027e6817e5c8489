"""Checks chat messages and turns them into turns for the model's template, for HTTP and ZeroMQ alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from actors.gateway.requests.refusals import invalid
from actors.gateway.text.tools.call_splitter import json_text

_ROLE_ALIASES = {"developer": "system", "function": "tool"}
ROLES = ("system", "user", "assistant", "tool", *_ROLE_ALIASES)
_NO_TEXTS = (
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio",
    "audio_url",
    "video_url",
    "input_file",
    "file",
    "document",
)
_CALL = '{"type": "function", "function": {"name": ..., "arguments": ...}}'


def turns_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's chat messages as turns for the template: role and text; calls of tools, and what a result belongs to.

    Raises: Refusal.
    """
    if not messages:
        raise invalid("messages", "at least one message", [])
    turns = [_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]
    _name_results(turns)
    return turns


def check_is_text(part: Any, path: str) -> None:
    """Check that a part of a message is no image, sound or file. Raises: Refusal."""
    if isinstance(part, dict) and str(part.get("type")) in _NO_TEXTS:
        raise invalid(path, "a text, because this model reads text only", part["type"])


def _part_text(part: Any, path: str) -> str:
    check_is_text(part, path)
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise invalid(path, '{"type": "text", "text": ...}', part)
    return part["text"]


def text_of(content: Any, path: str, part_text: Callable[[Any, str], str] = _part_text) -> str:
    """A content that is a text, or a list of parts that are texts. part_text: reads the part at a path. Raises: Refusal."""
    if isinstance(content, list):
        content = "".join(part_text(part, f"{path}[{i}]") for i, part in enumerate(content))
    if not isinstance(content, str):
        raise invalid(path, "text or a list of text parts", content)
    return content


def _turn(message: dict[str, Any], path: str) -> dict[str, Any]:
    given = message.get("role")
    if not isinstance(given, str) or given not in ROLES:
        raise invalid(f"{path}.role", f"one of {', '.join(ROLES)}", given)
    role = _ROLE_ALIASES.get(given, given)
    if message.get("audio"):
        raise invalid(f"{path}.audio", "null (anything else is not supported by this server)", message["audio"])
    calls = _calls_of(message, path)
    if calls and role != "assistant":
        raise invalid(f"{path}.tool_calls", "none, except in messages of the assistant", message.get("tool_calls"))
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""
    turn: dict[str, Any] = {"role": role, "content": text_of(content, f"{path}.content")}
    if calls:
        turn["tool_calls"] = calls
    if role == "tool":
        for name in ("tool_call_id", "name", "tool_name"):
            if isinstance(value := message.get(name), str):
                turn["name" if name == "tool_name" else name] = value
    return turn


def _calls_of(message: dict[str, Any], path: str) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise invalid(f"{path}.tool_calls", "a list", calls)
    read = [_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)]
    if older := message.get("function_call"):
        read.append(_call({"function": older}, f"{path}.function_call"))
    return read


def _call(call: Any, path: str) -> dict[str, Any]:
    """A call for the template, which takes its arguments as an object. Raises: Refusal."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(path, _CALL, call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    if not isinstance(arguments, dict | str | None):
        raise invalid(f"{path}.function.arguments", "a JSON object, or one as a text", arguments)
    shown = {"name": function["name"], "arguments": arguments or {}}
    given_id = call.get("id")
    return {**({"id": given_id} if isinstance(given_id, str) else {}), "type": "function", "function": shown}


def _parsed(text: str) -> Any:
    """The object that a text holds; the text itself if it holds none, because another model may have written it."""
    try:
        value = json.loads(text or "{}")
        json_text(value)  # it has no infinities and no NaN, which JSON lacks and Python reads
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _name_results(turns: list[dict[str, Any]]) -> None:
    """Add to each result of a call the name of its tool, which some templates show."""
    names = {call["id"]: call["function"]["name"] for turn in turns for call in turn.get("tool_calls", ()) if "id" in call}
    for turn in turns:
        if turn["role"] == "tool" and "name" not in turn and turn.get("tool_call_id") in names:
            turn["name"] = names[turn["tool_call_id"]]
