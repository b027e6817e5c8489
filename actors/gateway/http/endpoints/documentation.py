"""The endpoints that describe the others: /openapi.json for programs, /docs for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp

from actors.gateway.http.endpoint import Call, Endpoint, Services
from actors.gateway.http.openapi.document import openapi_document
from actors.gateway.http.openapi.page import page_of
from messages.release import release_version


def documentation(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints that describe these and themselves."""

    @cache
    def described(*, is_strict: bool, has_keys: bool) -> tuple[bytes, bytes]:
        """The document and the page. Kept, because it takes 12 ms of the event loop to make them."""
        made = openapi_document(known, release_version(), is_strict=is_strict, has_keys=has_keys)
        return msgspec.json.encode(made), page_of(made).encode()

    def at(services: Services) -> tuple[bytes, bytes]:
        return described(is_strict=services.settings.strict_fields, has_keys=services.keys is not None)

    async def document(services: Services, call: Call) -> ASGIApp:
        """GET /openapi.json: this API as OpenAPI describes it."""
        return Response(at(services)[0], media_type="application/json")

    async def page(services: Services, call: Call) -> ASGIApp:
        """GET /docs: this page."""
        return HTMLResponse(at(services)[1])

    own = (
        Endpoint("GET", "/openapi.json", document, query=None),
        Endpoint("GET", "/docs", page, query=None, media_type="text/html"),
    )
    known = (*endpoints, *own)
    return own
