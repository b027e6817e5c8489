"""A batch of full requests: each is a request of its own, in the journal as everywhere. The first has the id of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.bodies.openai_requests import chat_request
from actors.gateway.bodies.request_name import Origin, RequestName
from actors.gateway.bodies.schema import BatchBody, ChatBody, GenerateBody, RequestFields, read_body
from actors.gateway.http.endpoint import Call
from actors.gateway.requests.refusals import Refusal, check_one_given, invalid
from actors.gateway.requests.request import Request
from messages.wire.message import MAX_SHORT_CHARACTERS

_SHARED = tuple(name for name in RequestFields.__struct_fields__ if name not in ("stream", "stream_options"))


def batch_requests(body: BatchBody, name: RequestName, call: Call, is_strict: bool) -> list[NewRequest]:
    """The requests of a batch. What the batch says beside them holds for those that do not say otherwise.

    Raises: Refusal naming the field, such as requests[3].temperature.
    """
    shared = {field: value for field in _SHARED if (value := getattr(body, field)) is not None}
    wanted, news = body.requests or [], list[NewRequest]()
    for index, fields in enumerate(wanted):
        own = msgspec.structs.replace(name, request=member_id(name.request, index))
        try:
            news.append(_new_request({**shared, **fields}, own, call, is_strict))
        except Refusal as refusal:
            raise placed_refusal(index, refusal) from None
    return [msgspec.structs.replace(news[0], batch_size=len(news)), *news[1:]] if news else []


def member_id(batch_id: str, index: int) -> str:
    """The id of a request of a batch."""
    return f"{batch_id}.{index}"[-MAX_SHORT_CHARACTERS:] if index else batch_id


def members_of(first: Request, find: Callable[[str], Request | None]) -> list[Request] | None:
    """All requests of the batch whose first one this is; None if one is not known."""
    others = [find(member_id(first.spec.request, index)) for index in range(1, first.spec.batch_size)]
    known = [request for request in others if request is not None]
    return [first, *known] if len(known) == len(others) else None


def placed_refusal(index: int, refusal: Refusal) -> Refusal:
    """The refusal of a batch because of one of its requests."""
    place = f"requests[{index}]"
    field = f"{place}.{refusal.field}" if refusal.field else place
    named = refusal.field and refusal.detail.startswith(refusal.field)
    detail = f"{place}.{refusal.detail}" if named else f"{place}: {refusal.detail}"
    why = refusal.fine_code or refusal.code
    again_s, status = refusal.retry_after_s, refusal.status
    return Refusal(why, detail, field=field, retry_after_s=again_s, status=status, limit=refusal.limit)


def _new_request(fields: Mapping[str, Any], name: RequestName, call: Call, is_strict: bool) -> NewRequest:
    raw, ignored = msgspec.json.encode(fields), None if is_strict else call.ignored
    if "messages" in fields:
        chat = read_body(raw, ChatBody, ignored)
        _check_whole(chat)
        if chat.prompt_logprobs is not None:
            raise invalid("prompt_logprobs", "none in a batch", chat.prompt_logprobs)
        return chat_request(chat, "chat", name, call.origin, call.ignored)
    body = read_body(raw, GenerateBody, ignored)
    if body.prompt is None and body.tokens is None:
        check_one_given(call.ignored, prompt=None, tokens=None, messages=None)
    return prompt_request(body, name, call.origin, call.ignored)


def prompt_request(body: GenerateBody, name: RequestName, origin: Origin, ignored: Sequence[str]) -> NewRequest:
    """The request of POST /v1/generate. Raises: Refusal."""
    _check_whole(body)
    check_one_given(ignored, prompt=body.prompt, tokens=body.tokens)
    return body.new_request(
        "generate",
        name,
        origin,
        ignored,
        max_tokens=body.max_tokens,
        logprobs=-1 if body.logprobs is None else body.logprobs,
        texts=None if body.prompt is None else [body.prompt],
        ids=None if body.tokens is None else [body.tokens],
        prompt_field="prompt" if body.tokens is None else "tokens",
    )


def _check_whole(body: RequestFields) -> None:
    """Raises: Refusal for a stream."""
    if body.stream:
        raise invalid("stream", "false on this route", True)
