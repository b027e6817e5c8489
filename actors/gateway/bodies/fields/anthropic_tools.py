"""Tools in Anthropic's form: `tools` and `tool_choice` of a request, and blocks that call a tool or have its result. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actors.gateway.bodies.fields.wanted_tools import check_names, offered, tool_with
from actors.gateway.requests.refusals import invalid
from actors.gateway.text.tools.offered import OfferedTools, Tool

_REFERENCE = "tool_reference"
_CHOICES = '{"type": "auto" | "any" | "none"} or {"type": "tool", "name": ...}'


def anthropic_tools(
    tools: Sequence[Mapping[str, Any]] | None, choice: Mapping[str, Any] | None, messages: Sequence[Mapping[str, Any]]
) -> OfferedTools | None:
    """The tools of a request; None without one, or if none may be called. Raises: Refusal naming the field.

    `messages`: a tool with `defer_loading` is offered only if one of them refers to it.
    """
    read = [_tool_of(tool, f"tools[{at}]") for at, tool in enumerate(tools or ())]
    check_names(read, "tools")
    later = {tool["name"] for tool in tools or () if tool.get("defer_loading") is True} - _referred_to(messages)
    read = [tool for tool in read if tool.name not in later]
    kind = (choice or {}).get("type", "auto")
    if kind not in ("auto", "any", "none", "tool"):
        raise invalid("tool_choice", _CHOICES, choice)
    if not read and kind in ("any", "tool"):
        raise invalid("tool_choice", '"none" or "auto" without tools', choice)
    if not read or kind == "none":
        return None
    name = (choice or {}).get("name")
    if kind == "tool" and name not in [tool.name for tool in read]:
        raise invalid("tool_choice.name", "the name of one of the tools", name)
    names = [str(name)] if kind == "tool" else None
    most = int(kind == "tool" or (choice or {}).get("disable_parallel_tool_use") is True)
    return offered(read, names, is_required=kind in ("any", "tool"), most_calls=most)


def as_openai(message: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """One of Anthropic's messages as OpenAI's: results of tools become messages of their own. Raises: Refusal."""
    content = message.get("content")
    if not isinstance(content, list):
        return [dict(message)]
    results: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    rest: list[Any] = []
    for at, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            results.append(_result(block, f"{path}.content[{at}]"))
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input") or {}}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind not in ("thinking", "redacted_thinking"):  # a model is not shown what it has thought before
            rest.append(block)
    said = {**message, "content": rest, **({"tool_calls": calls} if calls else {})}
    return results + ([said] if rest or calls or not results else [])


def _result(block: Mapping[str, Any], path: str) -> dict[str, Any]:
    content, call = block.get("content"), block.get("tool_use_id")
    if not isinstance(call, str):
        raise invalid(f"{path}.tool_use_id", "the id of a call", call)
    if block.get("is_error") and isinstance(content, str):
        content = f"Error: {content}"
    if isinstance(content, list):
        content = [_told(block) for block in content]
    return {"role": "tool", "tool_call_id": call, "content": "" if content is None else content}


def _told(block: Any) -> Any:
    """A block of a result; one that refers to a tool becomes a text."""
    if not isinstance(block, dict) or block.get("type") != _REFERENCE:
        return block
    return {"type": "text", "text": f"The tool {block.get('tool_name')} can be called now.\n"}


def _referred_to(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of the tools that the client's search for tools has found."""
    blocks = [block for message in messages for block in _dicts(message.get("content"))]
    found = [inner for block in blocks if block.get("type") == "tool_result" for inner in _dicts(block.get("content"))]
    return {str(inner.get("tool_name")) for inner in found if inner.get("type") == _REFERENCE}


def _dicts(content: Any) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _tool_of(tool: Mapping[str, Any], field: str) -> Tool:
    if tool.get("type", "custom") != "custom":
        raise invalid(f"{field}.type", '"custom" (tools that the server itself runs are not offered)', tool["type"])
    return tool_with(tool, field, "input_schema")
