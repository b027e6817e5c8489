"""The headers in which an answer tells of the load of the server: how long it was to wait, and what was changed in it."""

from __future__ import annotations

from actors.gateway.requests.request_spec import RequestSpec


def load_headers(spec: RequestSpec) -> dict[str, str]:
    """`X-Queue-Wait-Ms`: how long what waited before the request was expected to take, if that was a second or more.
    `X-Degraded`: what the load of the server has changed in the request, if anything."""
    headers = {}
    if spec.shown_wait_ms:
        headers["X-Queue-Wait-Ms"] = str(spec.shown_wait_ms)
    if spec.degraded:
        headers["X-Degraded"] = spec.degraded
    return headers
