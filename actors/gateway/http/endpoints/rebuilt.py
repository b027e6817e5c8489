"""Rebuilds answers for connections whose gateway has died. Its successor does this, or the gateway that owns the request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp

from actors.gateway.http.answers.sse import JointAnswer, WholeAnswer
from actors.gateway.http.answers.stream_bytes import Begun
from actors.gateway.http.answers.stream_events import failure_of
from actors.gateway.http.batch_requests import members_of
from actors.gateway.http.endpoint import Call, Endpoint, Services
from actors.gateway.http.endpoints import live, responses
from actors.gateway.http.endpoints.generate import BATCH_PATH
from actors.gateway.http.endpoints.operator import cache
from actors.gateway.http.endpoints.streams import STREAMS_PATH, events_after, events_of, stream_of
from actors.gateway.http.formats.plain_bodies import batch_body, generate_body, requests_body
from actors.gateway.http.formats.registry import format_of
from actors.gateway.http.gateways.forwarded_call import AGAIN_PATH, RUN_PATH, START, TARGET, begun_of
from actors.gateway.http.request_identity import event_number
from actors.gateway.other_gateways.questions import KNOWN_PATH
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request

_READ_AGAIN = (STREAMS_PATH, responses.PATH + "/")  # where streams are asked for by an id


@dataclass(frozen=True)
class Rebuilt:
    """`app` writes the response again, without the first `n_passed_bytes` of its body, which the client has."""

    app: ASGIApp
    n_passed_bytes: int = 0


def rebuild_response(
    services: Services, request: Request, path: str, start: int, begun: Begun, *, is_whole: bool = True
) -> Rebuilt | None:
    """What writes the response to a request again; None if the same bytes cannot be written again.

    `path`: where its client asked. `start`: the id of the event that the client had before; -1: the response is not a stream.
    `begun`: what its client has of the response. `is_whole` False: a part of that need not be made.
    """
    has_begun = begun.is_something
    if start < 0 or (request.spec.is_whole and not path.startswith(_READ_AGAIN)):
        whole = None if has_begun else _whole(services, request, path)  # its body says how long it took
        return None if whole is None else Rebuilt(whole)
    if has_begun and not request.spec.is_resumable:
        return None  # its tokens are not in the journal, and computed again they may come in another order
    if has_begun and not request.n_generated and failure_of(request) is not None:
        return None  # either an error or a stream had begun: nobody knows
    try:
        events = events_of(services, request, start)
        if events.is_empty:
            return Rebuilt(events_after(services, request, start, "start"))
    except (Refusal, ValueError):  # the journal has fewer events than the client: its disk has lost some
        return None
    n_head_bytes = begun.n_head_bytes(request, events)
    n_passed_bytes = 0 if is_whole else begun.pass_written(request, events, n_head_bytes)
    if has_begun and begun.exceeds_journal(request, events, n_head_bytes + n_passed_bytes):
        if len(request.sequences) > 1:
            return None  # what follows may come in another order
        request.takes_pings = False  # the client has had none between the tokens that are computed again
    return Rebuilt(stream_of(services, request, events), n_passed_bytes)


def _whole(services: Services, request: Request, path: str) -> ASGIApp | None:
    model, longest_s = services.model_of(request), services.settings.request_timeout_s
    if request.spec.batch_size:
        requests = members_of(request, services.manager.find)
        if requests is None:
            return None
        return JointAnswer(services.manager, requests, lambda: requests_body(requests, services.models), longest_s)

    def render() -> Iterator[bytes]:
        if request.spec.api == "generate":
            return batch_body(request) if path == BATCH_PATH else generate_body(request, model.text)
        return format_of(request.spec.api).whole(request, request.spec.told_model(model.name), model.text)

    return WholeAnswer(services.manager, request, render, longest_s)


async def again(services: Services, call: Call) -> ASGIApp:
    """GET, of another gateway: the response to a request that it has forwarded before, from the response's beginning.

    Raises: Refusal when it cannot be made again.
    """
    request = await services.admission.known(call.parameters["id"], "id")
    start = event_number(call.parameters.get(START, ""), START)
    answer = rebuild_response(services, request, call.parameters.get(TARGET, ""), start, begun_of(call.parameters))
    if answer is None:
        detail = f"id: expected a request whose response can be made again, got {request.spec.request!r}"
        raise Refusal("not_found", detail, field="id")
    return answer.app


async def run(services: Services, call: Call) -> ASGIApp:
    """GET, of another gateway: two runs of a request, `Request.shown_run` and the present one. Raises: Refusal."""
    request = await services.admission.known(call.parameters["id"], "id")
    return Response(b"%d %d" % (request.shown_run, request.run))


async def known(services: Services, call: Call) -> ASGIApp:
    """GET, of another gateway: status 204 if this one knows a request with this id, else 404."""
    return Response(status_code=204 if services.admission.knows(call.parameters["id"]) else 404)


# only at the socket where the gateways of one server listen for each other
ENDPOINTS = (
    Endpoint("GET", AGAIN_PATH + "{id:path}", again, query=None),
    Endpoint("GET", RUN_PATH + "{id:path}", run, query=None),
    Endpoint("GET", KNOWN_PATH + "{id:path}", known, query=None),
    *responses.FOR_GATEWAYS,
    *cache.FOR_GATEWAYS,
    *live.FOR_GATEWAYS,
)
