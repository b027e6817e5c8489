"""Streams that are asked for again: after a lost connection, or from another machine."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.http.answers.sse import EventStream, WholeAnswer
from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.endpoint import Call, Endpoint, Services, forwarded
from actors.gateway.http.formats.registry import format_of
from actors.gateway.http.request_identity import event_number, request_of
from actors.gateway.requests.refusals import invalid
from actors.gateway.requests.request import Request

STREAMS_PATH = "/v1/streams/"
_FIELD, _AFTER = "id", "starting_after"


async def stream(services: Services, call: Call) -> ASGIApp:
    """GET /v1/streams/{id}: the events of a request, after the one with the number `starting_after` or Last-Event-ID.

    Raises: Refusal when the request is unknown.
    """
    # a browser's EventSource sends Last-Event-ID with the address that it was given first
    field = "Last-Event-ID" if call.identity.last_event else _AFTER
    start = call.identity.last_event or event_number(call.parameters.get(field, ""), field)
    request_id = request_of(call.parameters[_FIELD])
    if call.scope["method"] == "GET" and (elsewhere := await forwarded(services, call, request_id, start)):
        return elsewhere
    request = await services.admission.known(request_id, _FIELD, call.origin.caller)
    if request.spec.api == "zeromq":  # of a ZeroMQ client, whose ids are its own
        raise services.admission.unknown(request.spec.request, _FIELD)
    return events_after(services, request, start, field)


async def generated(services: Services, call: Call, new: NewRequest) -> ASGIApp:
    """The answer to a new request, or to the one that it joins: a stream, or one body. Raises: Refusal."""
    request = await services.admission.admit(new)
    if not new.is_whole:
        return events_after(services, request, call.identity.last_event, "Last-Event-ID")
    model, whole, longest_s = services.model_of(request), format_of(new.api).whole, services.settings.request_timeout_s
    name = request.spec.told_model(model.name)
    return WholeAnswer(services.manager, request, lambda: whole(request, name, model.text), longest_s)


def events_after(services: Services, request: Request, start: int, field: str) -> ASGIApp:
    """The answer that streams the events after number `start`; status 204, which ends a browser's EventSource, after the last.

    `field`: what gave `start`, for the refusal. Raises: Refusal.
    """
    try:
        events = events_of(services, request, start)
    except ValueError as error:
        why = "; one that was shown while the journal's disk refused writes is lost: read on from an earlier one"
        raise invalid(field, str(error).removeprefix("expected ").partition(", got")[0] + why, start) from None
    if events.is_empty:
        return Response(status_code=204, headers={"X-Request-Id": request.spec.shown_id})
    return stream_of(services, request, events)


def events_of(services: Services, request: Request, start: int) -> StreamEvents:
    """The events of a request after number `start`, as its API shows them. Raises: ValueError if that number is unknown."""
    model = services.model_of(request)
    writer = format_of(request.spec.api).stream(request, request.spec.told_model(model.name), model.text)
    return StreamEvents(request, writer, start)


def stream_of(services: Services, request: Request, events: StreamEvents) -> EventStream:
    """The answer that streams these events of a request."""
    settings = services.settings
    return EventStream(services.manager, request, events, settings.request_timeout_s, settings.sse_ping_s)


ENDPOINTS = (Endpoint("GET", STREAMS_PATH + "{id:path}", stream, query=(_AFTER,), generates=True, statuses=(204,)),)
