"""The operator's endpoints for the whole server: a drain, its end, and cordons of replicas.

A stop and a restart are commands on the server's machine alone (SECURITY.md says why)."""

from __future__ import annotations

from starlette.types import ASGIApp

from actors.gateway.bodies.operator_bodies import CordonBody, DrainBody, ServeBody, UncordonBody
from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response
from messages.lifecycle.cordon import CordonWanted
from messages.lifecycle.tree import DrainWanted, ServeWanted


async def drain(services: Services, call: Call) -> ASGIApp:
    """POST /v1/drain: refuse new requests and finish those in progress: {"state"}. /readyz fails until it is taken back.

    Raises: Refusal."""
    body = await services.body_reader.read(call.body or bytearray(b"{}"), DrainBody)
    taken = await services.commands.give(lambda me: DrainWanted(reply_to=me, deadline_s=body.deadline_s, then_stop=False))
    return json_response({"state": taken.state})


async def serve(services: Services, call: Call) -> ASGIApp:
    """POST /v1/serve: take new requests again after a drain: {"state"}. Raises: Refusal."""
    await services.body_reader.read(call.body or bytearray(b"{}"), ServeBody)
    taken = await services.commands.give(lambda me: ServeWanted(reply_to=me))
    return json_response({"state": taken.state})


async def cordon(services: Services, call: Call) -> ASGIApp:
    """POST /v1/cordon: send no new requests to one replica: {"replica", "is_cordoned", "state"}. Raises: Refusal."""
    body = await services.body_reader.read(call.body, CordonBody)
    deadline_s = body.deadline_s if body.drain else 0.0
    taken = await services.commands.give(
        lambda me: CordonWanted(
            reply_to=me, replica=body.replica, is_cordoned=True, is_draining=body.drain, deadline_s=deadline_s
        )
    )
    return json_response({"replica": body.replica, "is_cordoned": True, "state": taken.state})


async def uncordon(services: Services, call: Call) -> ASGIApp:
    """POST /v1/uncordon: send requests to a replica again: {"replica", "is_cordoned", "state"}. Raises: Refusal."""
    body = await services.body_reader.read(call.body, UncordonBody)
    taken = await services.commands.give(lambda me: CordonWanted(reply_to=me, replica=body.replica, is_cordoned=False))
    return json_response({"replica": body.replica, "is_cordoned": False, "state": taken.state})


_STATUSES = (403, 409, 503)  # 409: the server refuses it and says why; 503: the supervisor is being replaced

ENDPOINTS = (
    Endpoint("POST", "/v1/drain", drain, needs_admin=True, body=DrainBody, statuses=_STATUSES),
    Endpoint("POST", "/v1/serve", serve, needs_admin=True, body=ServeBody, statuses=_STATUSES),
    Endpoint("POST", "/v1/cordon", cordon, needs_admin=True, body=CordonBody, statuses=_STATUSES),
    Endpoint("POST", "/v1/uncordon", uncordon, needs_admin=True, body=UncordonBody, statuses=_STATUSES),
)
