"""The page /docs: the OpenAPI document for people, in one file without scripts, which asks no other host for anything. Pure."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #8884;padding:.2rem .5rem;text-align:left}"
    "summary{cursor:pointer;padding:.3rem 0}code{font-family:ui-monospace,monospace}b{display:inline-block;width:4.5rem}"
    ":root{color-scheme:light dark}"
)


def page_of(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    info, schemas = document["info"], document["components"]["schemas"]
    operations = [
        _operation(method, path, operation, schemas)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = escape(f"{info['title']} {info['version']}")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    intro = '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>'
    return f"{head}<h1>{title}</h1>{intro}{''.join(operations)}</html>\n"


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    head = f"<summary><b>{method.upper()}</b><code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
    parameters = [
        (one["name"], f"{one['in']}, {_words(one['schema'])}", one.get("required", False)) for one in operation["parameters"]
    ]
    body = operation.get("requestBody")
    fields = [] if body is None else _fields(body["content"]["application/json"]["schema"], schemas)
    statuses = ", ".join(f"{status} {escape(one['description'])}" for status, one in operation["responses"].items())
    return f"<details>{head}{_table('Parameters', parameters)}{_table('Body', fields)}<p>{statuses}</p></details>"


def _fields(reference: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, str, bool]]:
    schema = schemas[reference["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    return [(name, _words(kind), name in required) for name, kind in schema["properties"].items()]


def _table(title: str, rows: list[tuple[str, str, bool]]) -> str:
    if not rows:
        return ""
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code>{' *' if is_required else ''}<td>{escape(words)}"
        for name, words, is_required in rows
    )
    return f"<table><tr><th>{title}<th>* required{lines}</table>"


def _words(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(_words(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type", "anything")
    names = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[name]:g}" for name, sign in names.items() if name in schema and abs(schema[name]) < 2**31 - 1]
    inner = f" of {_words(schema['items'])}" if schema.get("items") else ""
    return f"{kind}{inner} {', '.join(bounds)}".rstrip()
