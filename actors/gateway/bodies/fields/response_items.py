"""The items of a conversation in OpenAI's Responses API: what clients send, and what the model's template reads. Pure."""

from __future__ import annotations

from typing import Any

from actors.gateway.admission.chat_turns import check_is_text, text_of, turns_of
from actors.gateway.bodies.fields.told_tools import custom_arguments, told_name
from actors.gateway.requests.refusals import invalid, json_text

_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}  # kinds of parts, and the field
# what a model has thought for earlier answers, which templates leave out, and what another server has carried out itself
_SKIPPED = ("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_BETWEEN = "\n\n"


def items_of(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`input` as a list of items. Raises: Refusal if it is empty."""
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    if not items:
        raise invalid("input", "text, or at least one item", given)
    return items


def turns_of_items(items: list[dict[str, Any]], instructions: str | None, n_before: int = 0) -> list[dict[str, Any]]:
    """The turns for the model's template. What the system says at the beginning is one turn, because templates take one; so is
    an answer with its calls of functions.

    `n_before`: how many of the items come from earlier responses; refusals count from there. Raises: Refusal.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for index, item in enumerate(items):
        message = _message(item, f"input[{max(index - n_before, 0)}]")
        if message is None:
            continue
        if message["role"] == "system" and messages and all(one["role"] == "system" for one in messages):
            messages[0] = {"role": "system", "content": messages[0]["content"] + _BETWEEN + message["content"]}
        elif "tool_calls" in message and messages and messages[-1]["role"] == "assistant":
            calls = [*messages[-1].get("tool_calls", ()), *message["tool_calls"]]
            messages[-1] = {**messages[-1], "tool_calls": calls}
        else:
            messages.append(message)
    if not messages:
        raise invalid("input", "at least one message", [])
    return turns_of(messages)


def _message(item: Any, path: str) -> dict[str, Any] | None:
    """The chat message of one item; None for an item that the template does not read. Raises: Refusal."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind in _SKIPPED:
        return None
    if kind == "function_call":
        return _call(item, path)
    if kind == "custom_tool_call":
        return _custom_call(item, path)
    if kind in _RESULTS:
        return _result(item, path)
    if kind != "message":
        raise invalid(path, '{"type": "message", "role": ..., "content": ...}', item)
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid(f"{path}.role", f"one of {', '.join(_ROLES)}", role)
    return {"role": _ROLES[role], "content": text_of(item.get("content"), f"{path}.content", _part_text)}


def _call(item: dict[str, Any], path: str) -> dict[str, Any]:
    """What an earlier answer has called."""
    called, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
    if not (isinstance(called, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise invalid(path, '{"type": "function_call", "call_id": ..., "name": ..., "arguments": ...}', item)
    return _calling(called, item, arguments)


def _custom_call(item: dict[str, Any], path: str) -> dict[str, Any]:
    """What an earlier answer has called with a text."""
    called, name, text = item.get("call_id"), item.get("name"), item.get("input")
    if not (isinstance(called, str) and isinstance(name, str) and isinstance(text, str)):
        raise invalid(path, '{"type": "custom_tool_call", "call_id": ..., "name": ..., "input": ...}', item)
    return _calling(called, item, custom_arguments(text))


def _calling(called: str, item: dict[str, Any], arguments: str) -> dict[str, Any]:
    function = {"name": told_name(item["name"], item.get("namespace") or ""), "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": called, "type": "function", "function": function}]}


def _result(item: dict[str, Any], path: str) -> dict[str, Any]:
    """What the client's tool has returned."""
    if not isinstance(called := item.get("call_id"), str):
        raise invalid(path, f'{{"type": "{item["type"]}", "call_id": ..., "output": ...}}', item)
    return {"role": "tool", "tool_call_id": called, "content": text_of(item.get("output"), f"{path}.output", _part_text)}


def _part_text(part: Any, path: str) -> str:
    check_is_text(part, path)
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(_TEXTS[kind]) if isinstance(kind, str) and kind in _TEXTS else None
    if not isinstance(text, str):
        raise invalid(path, f'{{"type": "input_text", "text": ...}} (kinds: {json_text(list(_TEXTS))})', part)
    return text
