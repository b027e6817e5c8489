"""The page at `/`, its files, and /v1/live, from which it and scripts learn how the server is."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from actors.gateway.access.http_keys import key_in
from actors.gateway.http.answers.live_stream import LiveStream
from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response
from actors.gateway.page.collector import ROWS_PATH
from actors.gateway.page.files import INDEX, page_file
from actors.gateway.page.requests import RowsWanted
from actors.gateway.page.snapshot import Audience
from actors.gateway.requests.refusals import Refusal, invalid

_STREAM = "stream"
# Ollama's command asks for the first line before it does anything else
_PLAIN = """Tardigrade is running
/             this address in a browser: a live page of the server
/docs         the HTTP API, for people; /openapi.json for programs
/v1/live      how the server is, as JSON; with ?stream=true once a second
/health       whether requests are served now
/metrics      for Prometheus
"""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept, and asked about each time: a new release has new files
}


async def root(services: Services, call: Call) -> ASGIApp:
    """GET /: the live page for browsers; for others a few words, and what Ollama's command asks for before anything else."""
    if b"text/html" in dict(call.scope["headers"]).get(b"accept", b""):
        return _file(call, INDEX)
    return PlainTextResponse(_PLAIN, headers={"Vary": "Accept"})


async def file(services: Services, call: Call) -> ASGIApp:
    """GET /page/{name}: a file of the live page. Raises: Refusal."""
    return _file(call, call.parameters["name"])


async def live(services: Services, call: Call) -> ASGIApp:
    """GET /v1/live: actors, pace, caches, requests and tenants now. With stream=true once a second, as events.

    With API keys only an admin's shows the requests and the usage of other tenants than its own. Raises: Refusal.
    """
    streams = call.parameters.get(_STREAM, "false")
    if streams not in ("true", "false"):
        raise invalid(_STREAM, "true or false", streams)
    audience, feed = _audience(services, call), services.live.feed
    if streams == "true":
        return LiveStream(feed, audience, lambda: _may_see(services, call, audience))
    viewer = feed.join(audience)
    try:
        snapshot = await viewer.next()
    finally:
        viewer.leave()
    if snapshot is None:
        raise Refusal("unavailable", "this gateway ends", retry_after_s=1.0)
    return Response(snapshot, media_type="application/json")


async def rows(services: Services, call: Call) -> ASGIApp:
    """POST, of another gateway: the requests of this one that have not ended."""
    return json_response(services.live.collector.rows(await services.body_reader.read(call.body, RowsWanted)))


def _audience(services: Services, call: Call) -> Audience:
    origin = call.origin
    return Audience(None if services.keys is None or origin.is_admin else services.keys.tenant_of(origin.caller))


def _may_see(services: Services, call: Call, audience: Audience) -> bool:
    """False when the key that the call has shown is revoked or expired, or has another role now."""
    if services.keys is None:
        return True
    holder = services.keys.known(key_in(dict(call.scope["headers"])))
    return holder is not None and audience == Audience(None if holder.is_admin else holder.tenant)


def _file(call: Call, name: str) -> Response:
    found = page_file(name)
    if found is None:
        raise Refusal("not_found", f"/page/{name[:80]}: there is no such file")
    headers = {**_HEADERS, "ETag": found.tag, "Vary": "Accept"}
    if dict(call.scope["headers"]).get(b"if-none-match", b"").decode("latin-1") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media_type)


ENDPOINTS = (
    Endpoint("GET", "/", root, query=None, is_open=True, media_type="text/plain"),
    Endpoint("GET", "/page/{name:path}", file, query=None, is_open=True, media_type="text/plain"),
    Endpoint("GET", "/v1/live", live, query=(_STREAM,)),
)
FOR_GATEWAYS = (Endpoint("POST", ROWS_PATH, rows),)
