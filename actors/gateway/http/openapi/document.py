"""The OpenAPI document of the HTTP API: paths, bodies and statuses, all drawn from the endpoints. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from actors.gateway.http.endpoint import Endpoint
from actors.gateway.http.errors import error_body_at
from actors.gateway.http.request_identity import EVENT_ID_PATTERN, ID_PATTERN
from actors.gateway.requests.refusals import STATUS_BY_CODE

_VERSION = "3.1.0"
_KEY = "apiKey"
_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 403, 408, 413, 431, 500, 503)  # what every path may answer: limits of a connection, a server that ends
_BY_ID = (404, 409, 410)
_CANCELLED_STATUS, _NO_SLASH_STATUS = 499, 307
# for requests with a body: every way in which one can be refused or can fail
_WITH_BODY = tuple({*STATUS_BY_CODE.values(), _CANCELLED_STATUS, _NO_SLASH_STATUS})
_PATTERN = re.compile(r"\{(\w+)(:path)?\}")
_RAISES = re.compile(r"\s*Raises:.*", re.DOTALL)
_HEADERS = {"Idempotency-Key": ID_PATTERN, "X-Request-Id": ID_PATTERN, "Last-Event-ID": EVENT_ID_PATTERN}
_NOT_IN_HTTP = {_CANCELLED_STATUS: "The request was cancelled through another connection"}


def openapi_document(endpoints: Sequence[Endpoint], version: str, *, is_strict: bool, has_keys: bool = False) -> dict[str, Any]:
    """The document. `is_strict`: unknown fields of bodies are refused; `has_keys`: calls must show an API key."""
    bodies = list(dict.fromkeys(one.body for one in endpoints if one.body is not None))
    _, schemas = msgspec.json.schema_components(bodies, ref_template=_REF)
    if not is_strict:
        for schema in schemas.values():
            schema.pop("additionalProperties", None)
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        operation = _operation(one)
        paths.setdefault(path_of(one), {})[one.method.lower()] = operation | ({"security": []} if one.is_open else {})
    keyed = {"securitySchemes": {_KEY: {"type": "http", "scheme": "bearer"}}} if has_keys else {}
    return {
        "openapi": _VERSION,
        "info": {"title": "Tardigrade", "version": version},
        "paths": paths,
        "components": {"schemas": schemas, **keyed},
        **({"security": [{_KEY: []}]} if has_keys else {}),
    }


def path_of(endpoint: Endpoint) -> str:
    """The path of an endpoint as OpenAPI writes it."""
    return _PATTERN.sub(r"{\1}", endpoint.path)


def statuses_of(endpoint: Endpoint) -> list[int]:
    """Every status that the endpoint may answer with, rising."""
    keyed = () if endpoint.is_open else (HTTPStatus.UNAUTHORIZED,)
    more = _WITH_BODY if endpoint.body is not None else _BY_ID if "{" in endpoint.path else ()
    return sorted({200, *_ALWAYS, *keyed, *more, *endpoint.statuses})


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary_of(endpoint),
        "operationId": f"{endpoint.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', path_of(endpoint).lower()).strip('_')}",
        "parameters": _parameters(endpoint),
        "responses": {str(status): _response(endpoint, status) for status in statuses_of(endpoint)},
    }
    if endpoint.body is not None:
        schema = {"$ref": _REF.format(name=endpoint.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def summary_of(endpoint: Endpoint) -> str:
    """What the endpoint does, in the words of its handler; its path where they say no more."""
    words = _RAISES.sub("", endpoint.handler.__doc__ or "")
    before, _, after = " ".join(words.split()).partition(": ")
    summary = after if before.startswith(endpoint.method) else f"{before}: {after}" if after else before
    return summary.removeprefix(f"{endpoint.method} {path_of(endpoint)}").lstrip(". ").rstrip(".") or path_of(endpoint)


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    text = {"type": "string"}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {**text, "minLength": 1}}
        for name, _ in _PATTERN.findall(endpoint.path)
    ]
    in_query = [{"name": name, "in": "query", "schema": text} for name in endpoint.query or ()]
    headers = _HEADERS.items() if endpoint.body is not None and endpoint.generates else ()
    in_header = [{"name": name, "in": "header", "schema": {**text, "pattern": f"^{rule}$"}} for name, rule in headers]
    return [*in_path, *in_query, *in_header]


def _response(endpoint: Endpoint, status: int) -> dict[str, Any]:
    words = _NOT_IN_HTTP.get(status) or HTTPStatus(status).phrase
    if status in (204, _NO_SLASH_STATUS):
        return {"description": words}
    if status == 200:
        kinds = ("application/json", "text/event-stream") if endpoint.generates else (endpoint.media_type,)
        return {"description": words, "content": {kind: {} for kind in kinds}}
    error = error_body_at(endpoint.path)(status, "top_p: expected a number <= 1.0, got 1.5", "top_p", "invalid")
    return {"description": words, "content": {"application/json": {"schema": {"type": "object"}, "example": error}}}
