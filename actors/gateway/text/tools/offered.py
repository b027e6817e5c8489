"""The tools that a client offers with a request, and which of them the answer must call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.gateway.text.tools.dialects import Dialect, ToolRules, forced_dialect

_TEXT = "string"


@dataclass(frozen=True)
class Tool:
    """One tool. `parameters`: the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]
    description: str = ""
    is_strict: bool = False  # a schema that cannot be enforced as a whole is refused
    schema_field: str = ""  # the client's name of the field with the schema, for refusals

    def as_openai(self) -> dict[str, Any]:
        """The tool as chat templates take it."""
        told = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": {name: value for name, value in told.items() if value or name == "parameters"}}


@dataclass(frozen=True)
class OfferedTools:
    """`tools`: what the model is told of. `callable_names`: the tools among them that the answer may call."""

    tools: tuple[Tool, ...]
    callable_names: tuple[str, ...]
    is_required: bool = False  # the answer is at least one call, and nothing else
    most_calls: int = 0  # 0: any number
    is_function: bool = False  # asked for by the older fields `functions` and `function_call`
    choice_field: str = "tool_choice"  # the client's name of the field, for refusals

    @property
    def callable_tools(self) -> list[tuple[int, Tool]]:
        """The tools that the answer may call, each with its place among all."""
        return [(at, tool) for at, tool in enumerate(self.tools) if tool.name in self.callable_names]

    def as_openai(self) -> list[dict[str, Any]]:
        """The tools as chat templates take them."""
        return [tool.as_openai() for tool in self.tools]

    def rules(self, dialect: Dialect) -> ToolRules:
        """How calls are found in answers of a model with this dialect."""
        texts = [
            f"{tool.name}.{key}"
            for _, tool in self.callable_tools
            for key, schema in (tool.parameters.get("properties") or {}).items()
            if isinstance(schema, Mapping) and _TEXT in _types_of(schema)
        ]
        return ToolRules(
            dialect=forced_dialect(dialect) if self.is_required else dialect,
            names=list(self.callable_names),
            texts=texts if dialect is Dialect.QWEN_XML else [],
            most_calls=self.most_calls,
            is_function=self.is_function,
            is_forced=self.is_required,
            begins_with_null=self.is_required,
        )


def _types_of(schema: Mapping[str, Any]) -> list[Any]:
    """The types that a parameter may have, as far as its schema names them."""
    kinds = schema.get("type")
    found = list(kinds) if isinstance(kinds, list) else [kinds]
    for key in ("anyOf", "oneOf"):
        for one in schema.get(key) or ():
            found += _types_of(one) if isinstance(one, Mapping) else []
    return found + [_TEXT for one in schema.get("enum") or () if isinstance(one, str)]
