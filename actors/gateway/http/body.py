"""Reads the body of an HTTP request within the budget that HTTP and ZeroMQ share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request as HttpRequest

from actors.gateway.admission.bodies import BodyBudget


@asynccontextmanager
async def counted_body(http: HttpRequest, declared: str, budget: BodyBudget) -> AsyncIterator[bytearray]:
    """The whole body; it counts against the budget until the context ends. `declared`: the header Content-Length, or "".

    Raises: Refusal as soon as there is too much; starlette's ClientDisconnect.
    """
    if declared.isdecimal() and int(declared) > budget.max_body_bytes:
        raise budget.too_large(declared)
    body, counted = bytearray(), 0
    try:
        async for part in http.stream():
            if len(body) + len(part) > budget.max_body_bytes:
                raise budget.too_large("more")
            counted = budget.count(len(body) + len(part), counted)
            body += part
        yield body
    finally:
        budget.release(counted)
