"""The page "API reference": every path of the HTTP API with its body and its statuses, from what /openapi.json says. Pure."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

from actors.gateway.http.api import ENDPOINTS
from actors.gateway.http.openapi.document import openapi_document

_HEAD = """# API reference

Drawn from the endpoints, as `/openapi.json` and `/docs` of a running server are. Examples and meanings: [HTTP API](api.md).
Fields that are not named here are ignored, and the answer says so; with `gateway.strict_fields` they are refused with 400.
"""
_MAX_DEFAULT_CHARACTERS = 40


def reference_page(document: dict[str, Any] | None = None) -> str:
    """The page as Markdown. `document`: an OpenAPI document; None: that of the server."""
    document = document or openapi_document(ENDPOINTS, metadata.version("tardigrade-serve"), is_strict=False)
    schemas = document["components"]["schemas"]
    operations = [
        _operation(method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    bodies = [_body(name, schemas[name], schemas) for name in sorted(schemas) if "properties" in schemas[name]]
    return "\n".join([_HEAD, "## Paths\n", *operations, "## Bodies\n", *bodies])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"### {method} {path}\n", f"{sentence(operation['summary'])}\n"]
    schema = _schema_of(operation)
    if schema:
        lines.append(f"Body: [{schema}](#{schema.lower()}).\n")
    if operation["parameters"]:
        lines += ["| parameter | in | type |", "|---|---|---|"]
        lines += [f"| `{one['name']}` | {one['in']} | {_cell(words(one['schema']))} |" for one in operation["parameters"]]
        lines.append("")
    statuses = " · ".join(f"{status} {one['description']}" for status, one in operation["responses"].items())
    return "\n".join([*lines, f"Statuses: {statuses}.\n"])


def sentence(text: str) -> str:
    """A text that begins with a capital letter and ends with a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _schema_of(operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    return "" if body is None else body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]


def _body(name: str, schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    required = schema.get("required", ())
    lines = [f"### {name}\n", *([f"{schema['description']}\n"] if schema.get("description") else [])]
    lines += ["| field | type | default |", "|---|---|---|"]
    for field, kind in schema["properties"].items():
        default = "required" if field in required else _default(kind)
        lines.append(f"| `{field}` | {_cell(words(kind))} | {_cell(default)} |")
    return "\n".join([*lines, ""])


def _default(kind: dict[str, Any]) -> str:
    text = json.dumps(kind["default"]) if "default" in kind else ""
    return f"`{text}`" if 0 < len(text) <= _MAX_DEFAULT_CHARACTERS else ""


def words(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(words(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    kind = schema.get("type", "any value")
    kinds = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if kinds == "array" and isinstance(schema.get("items"), dict):
        kinds = f"array of {words(schema['items'])}"
    bounds = [f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema]
    return f"{kinds} ({', '.join(bounds)})" if bounds else kinds


_BOUNDS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
    "minLength": "length ≥",
    "maxLength": "length ≤",
    "minItems": "items ≥",
    "maxItems": "items ≤",
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
