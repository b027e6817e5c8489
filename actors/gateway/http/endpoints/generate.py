"""This server's own endpoints that generate: one prompt, or a batch of them, as text or as token ids."""

from __future__ import annotations

from starlette.types import ASGIApp

from actors.gateway.bodies.schema import BatchBody, GenerateBody
from actors.gateway.http.answers.sse import JointAnswer, WholeAnswer
from actors.gateway.http.batch_requests import batch_requests, placed_refusal, prompt_request
from actors.gateway.http.endpoint import Call, Endpoint, Services, forwarded, read
from actors.gateway.http.formats.plain_bodies import batch_body, generate_body, requests_body
from actors.gateway.http.request_identity import checked_request_id, name_of
from actors.gateway.requests.refusals import check_one_given, invalid

BATCH_PATH = "/v1/batch"


async def generate(services: Services, call: Call) -> ASGIApp:
    """POST /v1/generate: what follows one prompt. The same request again, by its key or id, gets the same answer.

    Raises: Refusal when a field cannot be served.
    """
    body = await read(services, call, GenerateBody, "tokens")
    given = checked_request_id(body.request_id)
    if (elsewhere := await forwarded(services, call, given or call.identity.key)) is not None:
        return elsewhere
    name = name_of(
        call.identity,
        "/v1/generate",
        call.body,
        prefix="gen-",
        mint=services.owners.mint,
        is_streamed=False,
        given_in_body=given,
    )
    if body.n_or_one != 1:
        raise invalid("n", "1", body.n)
    new = prompt_request(body, name, call.origin, call.ignored)
    request = await services.admission.admit(new)
    longest_s, model = services.settings.request_timeout_s, services.model_of(request).text
    return WholeAnswer(services.manager, request, lambda: generate_body(request, model), longest_s)


async def batch(services: Services, call: Call) -> ASGIApp:
    """POST /v1/batch: the answers to many prompts or requests. Raises: Refusal when a field cannot be served."""
    if (elsewhere := await forwarded(services, call, call.identity.key)) is not None:
        return elsewhere
    body = await read(services, call, BatchBody, "tokens")
    if body.stream:
        raise invalid("stream", "false on this route", True)
    if body.requests is not None:
        return await _full_requests(services, call, body)
    check_one_given(call.ignored, prompts=body.prompts, tokens=body.tokens, requests=body.requests)
    name = "prompts" if body.tokens is None else "tokens"
    n_prompts, max_batch = len(body.prompts or body.tokens or ()), services.settings.max_batch
    if not 1 <= n_prompts <= max_batch:
        raise invalid(name, f"1 to {max_batch} prompts", n_prompts)
    new = body.new_request(
        "generate",
        name_of(call.identity, "/v1/batch", call.body, prefix="batch-", mint=services.owners.mint),
        call.origin,
        call.ignored,
        max_tokens=body.max_tokens,
        texts=body.prompts,
        ids=body.tokens,
        prompt_field=name,
    )
    request = await services.admission.admit(new)
    return WholeAnswer(services.manager, request, lambda: batch_body(request), services.settings.request_timeout_s)


async def _full_requests(services: Services, call: Call, body: BatchBody) -> ASGIApp:
    """The answers to requests of which each has fields of its own. Raises: Refusal when one of them cannot be served."""
    n_requests, max_batch = len(body.requests or ()), services.settings.max_batch
    if body.prompts is not None or body.tokens is not None:
        raise invalid("requests", "none beside prompts or tokens", f"{n_requests} requests")
    if not 1 <= n_requests <= max_batch:
        raise invalid("requests", f"1 to {max_batch} requests", n_requests)
    # recorded as streams are: after a restart all requests of the batch go on, though only the first one's connection is known
    name = name_of(call.identity, BATCH_PATH, call.body, prefix="batch-", mint=services.owners.mint, is_streamed=True)
    news = batch_requests(body, name, call, services.settings.strict_fields)
    requests = await services.admission.admit_all(news, placed_refusal)
    longest_s, models = services.settings.request_timeout_s, services.models
    return JointAnswer(services.manager, requests, lambda: requests_body(requests, models), longest_s)


ENDPOINTS = (
    # reads bodies even while new requests are refused: it may be a known one
    Endpoint("POST", "/v1/generate", generate, body=GenerateBody),
    Endpoint("POST", BATCH_PATH, batch, needs_open=True, body=BatchBody),
)
