"""Checks chat messages and turns them into turns for the model's template, for HTTP and ZeroMQ alike."""

from __future__ import annotations

from typing import Any

from actors.gateway.requests.refusals import invalid

_ROLES = ("system", "user", "assistant", "tool")
_ROLE_ALIASES = {"developer": "system"}


def turns_of(messages: list[dict[str, Any]]) -> list[dict[str, str]]:
    """OpenAI's chat messages as turns for the template: role and text.

    Raises: Refusal.
    """
    if not messages:
        raise invalid("messages", "at least one message", [])
    return [_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _turn(message: dict[str, Any], path: str) -> dict[str, str]:
    role = message.get("role")
    role = _ROLE_ALIASES.get(role, role) if isinstance(role, str) else role
    if role not in _ROLES:
        raise invalid(f"{path}.role", f"one of {', '.join(_ROLES)}", role)
    for name in ("tool_calls", "function_call", "audio"):
        if message.get(name):
            raise invalid(f"{path}.{name}", "null (anything else is not supported by this server)", message[name])
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_part_text(part, f"{path}.content[{i}]") for i, part in enumerate(content))
    if content is None and role == "assistant":
        content = ""
    if not isinstance(content, str):
        raise invalid(f"{path}.content", "text or a list of text parts", content)
    return {"role": role, "content": content}


def _part_text(part: Any, path: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise invalid(path, '{"type": "text", "text": ...}', part)
    return part["text"]
