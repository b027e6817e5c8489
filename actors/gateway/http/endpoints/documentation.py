"""The endpoints that describe the others: /openapi.json for programs, /docs for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import HTMLResponse
from starlette.types import ASGIApp

from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response
from actors.gateway.http.endpoints.server_facts import package_version
from actors.gateway.http.openapi.document import openapi_document
from actors.gateway.http.openapi.page import page_of


def documentation(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints that describe these and themselves."""

    def described(services: Services) -> dict[str, Any]:
        settings = services.settings
        return openapi_document(known, package_version(), is_strict=settings.strict_fields, has_keys=services.keys is not None)

    async def document(services: Services, call: Call) -> ASGIApp:
        """GET /openapi.json: this API as OpenAPI describes it."""
        return json_response(described(services))

    async def page(services: Services, call: Call) -> ASGIApp:
        """GET /docs: this page."""
        return HTMLResponse(page_of(described(services)))

    own = (
        Endpoint("GET", "/openapi.json", document, query=None),
        Endpoint("GET", "/docs", page, query=None, media_type="text/html"),
    )
    known = (*endpoints, *own)
    return own
