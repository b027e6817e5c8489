"""The tools of OpenAI's Responses API: which the model is told of, and how answers name its calls. Pure.

A model calls functions alone. A custom tool, which takes a text, is told as a function with the argument `input`; a tool of a
namespace has the namespace in its name. Tools that a server carries out itself (`web_search`) are passed over, because agents
send them with every request, whether or not they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actors.gateway.bodies.fields.unknown_fields import tell
from actors.gateway.bodies.fields.wanted_tools import choose, tool_of, tool_with
from actors.gateway.requests.refusals import invalid
from actors.gateway.text.tools.offered import OfferedTools, Tool

_FUNCTION, _CUSTOM, _NAMESPACE = "function", "custom", "namespace"
_TOLD = (_FUNCTION, _CUSTOM, _NAMESPACE)
_KINDS = f'"{_FUNCTION}", "{_CUSTOM}" or "{_NAMESPACE}"'
_FORMATS = '{"type": "text"} or {"type": "grammar", "syntax": ..., "definition": ...}'
_JOINT = "__"  # between a namespace and a name
_INPUT = "input"  # the argument of a custom tool


@dataclass(frozen=True)
class CalledTool:
    """A tool as the items of a conversation name it."""

    name: str
    namespace: str = ""
    is_custom: bool = False

    @property
    def told_name(self) -> str:
        """Its name for the model."""
        return told_name(self.name, self.namespace)


def told_name(name: str, namespace: str) -> str:
    """The name that the model is told for a tool. `namespace`: "" without one."""
    return f"{namespace.removesuffix(_JOINT)}{_JOINT}{name}" if namespace else name


def is_told(tool: Mapping[str, Any]) -> bool:
    """True for a tool that the client carries out; the model is not told of any other."""
    return tool["type"] in _TOLD


def check_kinds(tools: Sequence[Any], ignored: list[str] | None, field: str = "tools") -> None:
    """Append to `ignored` the places and types of the tools that the server would have to carry out.

    `ignored`: None if such tools are refused. `field`: what has the tools. Raises: Refusal.
    """
    for at, tool in enumerate(tools):
        place, kind = f"{field}[{at}]", tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str) or (kind not in _TOLD and ignored is None):
            raise invalid(f"{place}.type", f"{_KINDS} (the server itself carries out no tools)", kind)
        if kind == _NAMESPACE:
            if not isinstance(tool.get("name"), str) or not isinstance(tool.get("tools"), list):
                raise invalid(place, '{"type": "namespace", "name": ..., "tools": [...]}', tool)
            check_kinds(tool["tools"], ignored, f"{place}.tools")
        elif kind not in _TOLD and ignored is not None:
            tell(ignored, f"{place}.{kind}")


def response_tools(tools: Sequence[Mapping[str, Any]], choice: Any, *, is_parallel: bool) -> OfferedTools | None:
    """The tools of a request, whose types have been checked; None without one, or if none may be called.

    `choice`: `tool_choice`. `is_parallel`: an answer may have several calls. Raises: Refusal naming the field.
    """
    read = [_tool_of(*one) for one in _each(tools)]
    if isinstance(choice, dict) and choice.get("type") == _CUSTOM:
        choice = {**choice, "type": _FUNCTION}
    chosen = choose(read, choice)
    return chosen if chosen is None or is_parallel else replace(chosen, most_calls=1)


def called_tools(tools: Sequence[Mapping[str, Any]]) -> dict[str, CalledTool]:
    """The tools of a request whose calls are no calls of plain functions, by the name that the model was told."""
    found = [
        CalledTool(tool["name"], namespace, tool["type"] == _CUSTOM)
        for tool, _, namespace in _each(tools)
        if namespace or tool["type"] == _CUSTOM
    ]
    return {called.told_name: called for called in found}


def custom_input(arguments: str) -> str | None:
    """The text for a custom tool in the arguments of the model's call; None if they were cut off."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return None
    text = given.get(_INPUT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments  # what the model wrote instead is for the tool to judge


def custom_arguments(text: str) -> str:
    """The arguments with which a model calls a custom tool."""
    return json.dumps({_INPUT: text}, ensure_ascii=False)


def _each(tools: Sequence[Any], field: str = "tools", namespace: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each tool that the model is told of, its place, and its namespace ("" without one)."""
    for at, tool in enumerate(tools):
        place = f"{field}[{at}]"
        if tool["type"] == _NAMESPACE:
            yield from _each(tool["tools"], f"{place}.tools", tool["name"])
        elif is_told(tool):
            yield tool, place, namespace


def _tool_of(tool: dict[str, Any], place: str, namespace: str) -> Tool:
    told = {**tool, "parameters": _input_schema(tool, place)} if tool["type"] == _CUSTOM else tool
    if not namespace:
        return tool_with(told, place) if tool["type"] == _CUSTOM else tool_of(told, place)
    own = tool_with(told, place)  # its own name is checked first
    return tool_with({**told, "name": told_name(own.name, namespace)}, place)


def _input_schema(tool: dict[str, Any], place: str) -> dict[str, Any]:
    """The schema of the arguments of a custom tool, which tells the format of its text. Raises: Refusal."""
    wanted = tool.get("format") or {"type": "text"}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    syntax, definition = (wanted.get("syntax"), wanted.get("definition")) if kind == "grammar" else ("", "")
    if kind not in ("text", "grammar") or not isinstance(syntax, str) or not isinstance(definition, str):
        raise invalid(f"{place}.format", _FORMATS, wanted)
    told = {"description": f"text that matches this grammar ({syntax}):\n{definition}"} if definition else {}
    return {
        "type": "object",
        "properties": {_INPUT: {"type": "string", **told}},
        "required": [_INPUT],
        "additionalProperties": False,
    }
