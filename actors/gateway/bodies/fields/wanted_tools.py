"""The tools that the fields of an OpenAI request offer: `tools` and `tool_choice`, or the older `functions`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.gateway.requests.refusals import invalid
from actors.gateway.text.tools.offered import OfferedTools, Tool

MOST_TOOLS = 128  # as OpenAI
_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
_CHOICES = '"none", "auto", "required" or {"type": "function", "function": {"name": ...}}'


def wanted_tools(fields: Mapping[str, Any]) -> OfferedTools | None:
    """The tools of a request; None without one, or if none may be called. `fields`: values by name; None is not given.

    Raises: Refusal naming the field.
    """
    tools, functions = fields.get("tools"), fields.get("functions")
    if tools and functions:
        raise invalid("functions", "nothing beside tools", functions)
    if functions:
        return _functions(functions, fields.get("function_call"))
    read = [tool_of(tool, f"tools[{at}]") for at, tool in enumerate(tools or [])]
    chosen = choose(read, fields.get("tool_choice"))
    if chosen is None or fields.get("parallel_tool_calls") is not False:
        return chosen
    return replace(chosen, most_calls=1)


def choose(tools: Sequence[Tool], choice: Any) -> OfferedTools | None:
    """The tools with OpenAI's `tool_choice`. Raises: Refusal."""
    field = "tool_choice"
    check_names(tools, "tools")
    if choice in (None, "none", "auto"):
        return offered(tools) if tools and choice != "none" else None
    if not tools:
        raise invalid(field, '"none" or "auto" without tools', choice)
    if choice in ("required", "any"):
        return offered(tools, is_required=True)
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "allowed_tools":
        inside = choice.get("allowed_tools", choice)
        mode, allowed = inside.get("mode"), inside.get("tools")
        if mode not in ("auto", "required") or not isinstance(allowed, list):
            raise invalid(field, 'allowed_tools with a mode ("auto" or "required") and tools', choice)
        names = [_named(one, tools, field) for one in allowed]
        return offered(tools, names, is_required=mode == "required")
    if kind != "function":
        raise invalid(field, _CHOICES, choice)
    return offered(tools, [_named(choice, tools, field)], is_required=True, most_calls=1)


def offered(tools: Sequence[Tool], names: Sequence[str] | None = None, **rules: Any) -> OfferedTools:
    """The tools, and which of them the answer may call: those with these names, or all if `names` is None."""
    return OfferedTools(tuple(tools), tuple(tool.name for tool in tools) if names is None else tuple(names), **rules)


def check_names(tools: Collection[Tool], field: str) -> None:
    """Check the tools of a request; `field` has them. Raises: Refusal for too many, and for a name that two of them have."""
    if len(tools) > MOST_TOOLS:
        raise invalid(field, f"at most {MOST_TOOLS}", len(tools))
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise invalid(field, "tools of different names", next(name for name in names if names.count(name) > 1))


def tool_with(function: Any, field: str, schema_key: str = "parameters") -> Tool:
    """The tool that an object with a name, a description and a schema describes. Raises: Refusal naming the field."""
    if not isinstance(function, dict):
        raise invalid(field, "an object with a name", function)
    name, schema = function.get("name"), function.get(schema_key)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(f"{field}.name", "1 to 128 letters, digits and the characters _ - . :", name)
    if schema is not None and not isinstance(schema, dict):
        raise invalid(f"{field}.{schema_key}", "a JSON schema", schema)
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise invalid(f"{field}.description", "a text", description)
    schema = schema or {"type": "object", "properties": {}}
    if schema.get("type", "object") != "object":
        raise invalid(f"{field}.{schema_key}.type", '"object"', schema["type"])
    return Tool(name, schema, description or "", function.get("strict") is True, f"{field}.{schema_key}")


def tool_of(tool: Any, field: str) -> Tool:
    """The tool that an object of the type `function` describes. Raises: Refusal naming the field."""
    if not isinstance(tool, dict) or tool.get("type", "function") != "function":
        raise invalid(field, '{"type": "function", "function": {...}}', tool)
    if "function" not in tool and "input_schema" in tool:  # Anthropic's form: its schema would be lost
        raise invalid(f"{field}.function", 'an object with "name" and "parameters" (input_schema is for /v1/messages)', None)
    # the form of /v1/responses has the function's fields beside the type
    return tool_with(tool.get("function"), f"{field}.function") if "function" in tool else tool_with(tool, field)


def _named(choice: Any, tools: Collection[Tool], field: str) -> str:
    inside = choice.get("function", choice) if isinstance(choice, dict) else choice
    name = inside.get("name") if isinstance(inside, dict) else None
    if name not in [tool.name for tool in tools]:
        raise invalid(f"{field}.function.name", "the name of one of the tools", name)
    return str(name)


def _functions(functions: Sequence[Any], choice: Any) -> OfferedTools | None:
    tools = [tool_with(function, f"functions[{at}]") for at, function in enumerate(functions)]
    check_names(tools, "functions")
    rules: dict[str, Any] = {
        "most_calls": 1, "is_function": True, "choice_field": "function_call",
    }  # fmt: skip
    if choice == "none":
        return None
    if choice in (None, "auto"):
        return offered(tools, **rules)
    if not isinstance(choice, dict):
        raise invalid("function_call", '"none", "auto" or {"name": ...}', choice)
    return offered(tools, [_named(choice, tools, "function_call")], is_required=True, **rules)
