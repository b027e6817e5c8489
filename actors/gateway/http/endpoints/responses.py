"""OpenAI's Responses API: responses, whole, streamed or in the background, that are kept with their conversations.

A response is a request like any other. The journal has what it repeats of its request and the items of its conversation, so it
can be shown and continued for as long as finished requests are retained, also after the gateway's death. Like every request it
belongs to the gateway that made it; other gateways forward their calls to that one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.types import ASGIApp

from actors.gateway.admission.new_request import NewRequest, WantedReasoning
from actors.gateway.bodies.fields.response_items import items_of, turns_of_items
from actors.gateway.bodies.fields.told_tools import check_kinds
from actors.gateway.bodies.response_body import ResponsesBody
from actors.gateway.http.endpoint import Call, Endpoint, Services, forwarded, gateway_of, json_response, read
from actors.gateway.http.endpoints.streams import events_after, generated
from actors.gateway.http.errors import error_response
from actors.gateway.http.formats.responses.events import event_before
from actors.gateway.http.formats.responses.object import response_object, told_output
from actors.gateway.http.gateways.forwarded_call import RESPONSE_PATH
from actors.gateway.http.request_identity import event_number, name_of, request_of
from actors.gateway.other_gateways.questions import fetched
from actors.gateway.other_gateways.unix_http import get
from actors.gateway.requests.model_names import check_model
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.refusals import Refusal, invalid, journal_unavailable
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import ResponseTerms

PATH = "/v1/responses"
_PREVIOUS = "previous_response_id"
_CALLER = "caller"  # in what one gateway asks another
_SETTLE_S = 1.0  # longest wait until a response in the background is on its way
_MOST_ITEMS = 100  # in one answer, as OpenAI's
_encode, _decode = msgspec.json.encode, msgspec.json.decode
Items = list[dict[str, Any]]


async def create(services: Services, call: Call) -> ASGIApp:
    """POST /v1/responses: the answer to a conversation, which is kept. Raises: Refusal."""
    if (elsewhere := await forwarded(services, call, call.identity.key)) is not None:
        return elsewhere
    body = await _read(services, call)
    body.check()
    before = await _conversation(services, call, body.previous_response_id) if body.previous_response_id else []
    new = _new(services, call, body, before)
    if not body.background or body.stream:
        return await generated(services, call, new)
    request = await services.admission.admit(new)
    reader = Reader(request)
    await reader.wait_settled(_SETTLE_S)
    reader.close()
    if request.is_over and not request.is_recorded:  # the journal's disk refused it: nobody could ask for it again
        return error_response(journal_unavailable(), {"X-Request-Id": request.spec.shown_id})
    return _shown(services, request, call.ignored)


async def _read(services: Services, call: Call) -> ResponsesBody:
    """The body. Tools that the server would have to carry out are told as ignored. Raises: Refusal."""
    body, n_fields = await read(services, call, ResponsesBody), len(call.ignored)
    check_kinds(body.tools or (), None if services.settings.strict_fields else call.ignored)
    if len(call.ignored) > n_fields:
        services.ignored_fields.note(call.scope["path"], ["tools"])
    return body


def _new(services: Services, call: Call, body: ResponsesBody, before: Items) -> NewRequest:
    """The request for admission. `before`: the items of the conversation that it goes on with. Raises: Refusal."""
    is_streamed = bool(body.stream) and services.settings.journal_http_streams
    is_kept = body.is_stored or is_streamed
    name = name_of(call.identity, PATH, call.body, prefix="resp_", mint=services.owners.mint, is_streamed=is_kept)
    if body.background:
        name = msgspec.structs.replace(name, ends_with_client=False)
    items, tools = [*before, *items_of(body.input)], body.offered_tools
    kept = ResponseTerms(
        shown=_encode(body.shown()), items=_encode(items), is_stored=body.is_stored, is_background=bool(body.background)
    )
    new = body.request_fields().new_request(
        "responses",
        name,
        call.origin,
        call.ignored,
        max_tokens=body.max_output_tokens,
        max_tokens_field="max_output_tokens",
        logprobs=body.wanted_logprobs,
        turns=turns_of_items(items, body.instructions, len(before)),
        tools=tools,
        template=body.template,
        reasoning=WantedReasoning(is_split=True),
        prompt_field="input",
        response=kept,
    )
    return msgspec.structs.replace(new, grammar_field="text.format")


async def count_input(services: Services, call: Call) -> ASGIApp:
    """POST /v1/responses/input_tokens: how many tokens the model would read. Raises: Refusal."""
    body = await _read(services, call)
    check_model(body.model or "", services.settings)
    before = await _conversation(services, call, body.previous_response_id) if body.previous_response_id else []
    turns, tools = turns_of_items([*before, *items_of(body.input)], body.instructions, len(before)), body.offered_tools
    told = tools.as_openai() if tools is not None else ()
    encoder = services.admission.builder.encoder
    ids = await encoder.encode_chat(turns, "input", told, body.template, caller=call.origin.caller)
    return json_response({"object": "response.input_tokens", "input_tokens": len(ids)}, ignored=call.ignored)


async def show(services: Services, call: Call) -> ASGIApp:
    """GET /v1/responses/{id}: a response as it is now, or with `stream=true` its events after number `starting_after`.

    Raises: Refusal.
    """
    if call.parameters.get("stream") != "true":
        return await _at_owner(services, call, "show")
    after = call.parameters.get("starting_after", "")
    start = call.identity.last_event or event_before(event_number(after, "starting_after"))
    request_id = request_of(call.parameters["id"])
    if (elsewhere := await forwarded(services, call, request_id, start)) is not None:
        return elsewhere
    request = await _stored(services, request_id, "id", call.origin.caller)
    return events_after(services, request, start, "starting_after")


async def remove(services: Services, call: Call) -> ASGIApp:
    """DELETE /v1/responses/{id}: forget it. One that is running is cancelled. Raises: Refusal."""
    return await _at_owner(services, call, "delete")


async def cancel(services: Services, call: Call) -> ASGIApp:
    """POST /v1/responses/{id}/cancel: the response, which is over. Raises: Refusal."""
    return await _at_owner(services, call, "cancel")


async def input_items(services: Services, call: Call) -> ASGIApp:
    """GET /v1/responses/{id}/input_items: what the model has read. Raises: Refusal."""
    return await _at_owner(services, call, "input_items")


async def of_gateway(services: Services, call: Call) -> ASGIApp:
    """GET from another gateway: forwards what its client asks about a response that this gateway owns. Raises: Refusal.

    After a start with another number of gateways the response may still be at a third one.
    """
    return await _at_owner(services, call, call.parameters["do"])


async def _at_owner(services: Services, call: Call, do: str) -> ASGIApp:
    """Do `do` here, or at the gateway that has the response. Raises: Refusal."""
    parameters = {_CALLER: call.origin.caller.hex(), **call.parameters, "id": request_of(call.parameters["id"])}
    if socket := await gateway_of(services, parameters["id"]):
        return await fetched(socket, _call_for(do, parameters))
    return await _DO[do](services, parameters)


def _call_for(do: str, parameters: Mapping[str, str]) -> bytes:
    target = RESPONSE_PATH + quote(parameters["id"], safe="")
    return get(f"{target}?{urlencode({**parameters, 'do': do})}")


async def _conversation(services: Services, call: Call, shown_id: str) -> Items:
    """The items of a stored response's conversation, its own answer included. Raises: Refusal."""
    response_id, caller = request_of(shown_id), call.origin.caller
    if not (socket := await gateway_of(services, response_id)):
        return _items_after(services, await _stored(services, response_id, _PREVIOUS, caller))
    answer = await fetched(socket, _call_for("conversation", {"id": response_id, _CALLER: caller.hex()}))
    if answer.status_code == 400:  # as `_items_after` refuses it there
        raise _not_over(response_id)
    if answer.status_code != 200:
        raise services.admission.unknown(response_id, _PREVIOUS)
    return _decode(answer.body)


async def _stored(services: Services, response_id: str, field: str, caller: bytes | None) -> Request:
    request = await services.admission.known(response_id, field, caller)
    if not request.spec.is_stored:
        raise services.admission.unknown(response_id, field)
    return request


def _items_after(services: Services, request: Request) -> Items:
    """The items of a response and of its output, which its successor begins with. Raises: Refusal for one that is not over."""
    if not request.is_over:
        raise _not_over(request.spec.request)
    return [*_items_of(request), *told_output(request, services.model_of(request).text)]


def _not_over(response_id: str) -> Refusal:
    return invalid(_PREVIOUS, "a response that is over", response_id)


def _items_of(request: Request) -> Items:
    assert request.spec.response is not None, "it is stored"
    return _decode(request.spec.response.items)


def _shown(services: Services, request: Request, ignored: list[str] | None = None) -> ASGIApp:
    model = services.model_of(request)
    return json_response(response_object(request, request.spec.told_model(model.name), model.text), ignored=ignored or ())


def _caller_in(parameters: Mapping[str, str]) -> bytes | None:
    """Who asks; None if a gateway of the last release has passed the question on."""
    caller = parameters.get(_CALLER)
    return None if caller is None else bytes.fromhex(caller)


async def _show(services: Services, parameters: Mapping[str, str]) -> ASGIApp:
    return _shown(services, await _stored(services, parameters["id"], "id", _caller_in(parameters)))


async def _cancel(services: Services, parameters: Mapping[str, str]) -> ASGIApp:
    return _shown(services, await _ended(services, parameters))


async def _delete(services: Services, parameters: Mapping[str, str]) -> ASGIApp:
    request = await _ended(services, parameters)
    services.manager.finished.retained.delete(request.spec.request)
    return json_response({"id": request.spec.id_in_answers, "object": "response", "deleted": True})


async def _ended(services: Services, parameters: Mapping[str, str]) -> Request:
    """A stored response, which is cancelled if it was running. Raises: Refusal."""
    request = await _stored(services, parameters["id"], "id", _caller_in(parameters))
    if not request.is_over:
        services.manager.cancel(request)
        reader = Reader(request)
        await reader.wait_end()
        reader.close()
    return request


async def _input_items(services: Services, parameters: Mapping[str, str]) -> ASGIApp:
    request = await _stored(services, parameters["id"], "id", _caller_in(parameters))
    items = [_with_id(item, index) for index, item in enumerate(_items_of(request))]
    if parameters.get("order", "desc") == "desc":
        items.reverse()
    after, limit = parameters.get("after", ""), parameters.get("limit", "20")
    if not limit.isdecimal() or not 1 <= int(limit) <= _MOST_ITEMS:
        raise invalid("limit", f"1 to {_MOST_ITEMS}", limit)
    ids = [item["id"] for item in items]
    if after and after not in ids:
        raise invalid("after", "the id of an item", after)
    first = ids.index(after) + 1 if after else 0
    page = items[first : first + int(limit)]
    has_more = first + len(page) < len(items)
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return json_response({"object": "list", "data": page, **ends, "has_more": has_more})


def _with_id(item: dict[str, Any], index: int) -> dict[str, Any]:
    """An item as clients read it: with an id, and the content of a message as a list of parts."""
    if item.get("type", "message") != "message":
        return {"id": f"item_{index}", "status": "completed", **item}
    content = item.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    return {"id": f"item_{index}", "type": "message", "status": "completed", **item, "content": parts}


async def _told_conversation(services: Services, parameters: Mapping[str, str]) -> ASGIApp:
    request = await _stored(services, parameters["id"], _PREVIOUS, _caller_in(parameters))
    return json_response(_items_after(services, request))


_DO: dict[str, Callable[[Services, Mapping[str, str]], Awaitable[ASGIApp]]] = {
    "show": _show,
    "delete": _delete,
    "cancel": _cancel,
    "input_items": _input_items,
    "conversation": _told_conversation,
}
_ONE = PATH + "/{id:path}"
_SHOW_QUERY = ("stream", "starting_after", "include", "include[]", "include_obfuscation")
ENDPOINTS = (
    Endpoint("POST", PATH, create, needs_open=True, body=ResponsesBody, generates=True),
    Endpoint("POST", PATH + "/input_tokens", count_input, body=ResponsesBody),
    Endpoint("GET", _ONE + "/input_items", input_items, query=("after", "include", "include[]", "limit", "order")),
    Endpoint("GET", _ONE, show, query=_SHOW_QUERY, generates=True, statuses=(204,)),
    Endpoint("DELETE", _ONE, remove),
    Endpoint("POST", _ONE + "/cancel", cancel),
)
FOR_GATEWAYS = (Endpoint("GET", RESPONSE_PATH + "{id:path}", of_gateway, query=None),)
