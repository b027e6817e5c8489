"""Makes a small model do its part in a loop of tool calls: what a client asks is changed on its way to a server. Pure.

The client and the server see one another's real messages; so small a model would hardly call a tool by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STOPS = [".", ","]  # end an answer that might go on to the end of the context


@dataclass(frozen=True)
class _Door:
    """How an API calls the fields that are changed. `result`: in every body with the result of a call."""

    stop: str
    schema: str
    result: str
    choice: Mapping[str, Any]
    name_key: str = ""  # the object in a tool, and in the choice, that has the name; "": the tool itself


_DOORS: Mapping[str, _Door] = {
    "/v1/responses": _Door("stop", "parameters", '"function_call_output"', {"type": "function"}),
    "/v1/messages": _Door("stop_sequences", "input_schema", '"tool_result"', {"type": "tool"}),
    "/v1/chat/completions": _Door("stop", "parameters", '"tool_call_id"', {"type": "function"}, "function"),
}


@dataclass(frozen=True)
class ForcedCall:
    """The call that answers a conversation without results: of the tool `tool`, with `arguments`."""

    tool: str
    arguments: Mapping[str, Any]

    def put_into(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The body that the server gets. `path`: where it is sent; what is sent elsewhere is left as it is."""
        door = _DOORS.get(path.partition("?")[0])
        if door is None:
            return body
        tools = [self._obliged(tool, door) for tool in body.get("tools") or ()]
        changed = {**body, "temperature": 0, **({"tools": tools} if tools else {})}
        if tools == (body.get("tools") or []) or door.result in json.dumps(body):
            return {**changed, door.stop: _STOPS}
        named = {"name": self.tool}
        choice = {**door.choice, **({door.name_key: named} if door.name_key else named)}
        return {**changed, "tool_choice": choice}

    def _obliged(self, tool: dict[str, Any], door: _Door) -> dict[str, Any]:
        """The tool with arguments that can only be these, if it is the one."""
        inner = tool.get(door.name_key, {}) if door.name_key else tool
        if inner.get("name") != self.tool:
            return tool
        values = {name: {"const": value} for name, value in self.arguments.items()}
        schema = {"type": "object", "properties": values, "required": [*values], "additionalProperties": False}
        told = {**inner, door.schema: schema}
        return {**tool, door.name_key: told} if door.name_key else told
