"""OpenAI's bodies as requests for admission: the fields of a chat or a completion mean the same over HTTP and ZeroMQ."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.bodies.fields.prompts import prompts_of
from actors.gateway.bodies.fields.wanted_template import check_continued
from actors.gateway.bodies.request_name import Origin, RequestName
from actors.gateway.bodies.schema import ChatBody, CompletionBody
from actors.gateway.requests.refusals import invalid
from actors.gateway.requests.request_spec import Api, BestOf
from messages.generation.terms import NO_TOKEN_LIMIT


def chat_request(body: ChatBody, api: Api, name: RequestName, origin: Origin, ignored: Sequence[str] = ()) -> NewRequest:
    """The request of POST /v1/chat/completions. `ignored`: names of unknown fields. Raises: Refusal naming the field."""
    longest, turns = body.max_completion_tokens, turns_of(body.messages)
    if body.continue_final_message:
        check_continued(turns, "continue_final_message")
    return body.new_request(
        api,
        name,
        origin,
        ignored,
        max_tokens=body.max_tokens if longest is None else longest,
        max_tokens_field="max_tokens" if longest is None else "max_completion_tokens",
        logprobs=body.wanted_logprobs,
        prompt_logprobs=or_none(body.prompt_logprobs),
        shown_prompt_logprobs=or_none(body.prompt_logprobs),
        with_token_ids=bool(body.return_token_ids),
        turns=turns,
        tools=body.offered_tools,
        template=body.template,
        reasoning=body.reasoning,
        prompt_field="messages",
    )


def completion_request(
    body: CompletionBody,
    api: Api,
    name: RequestName,
    origin: Origin,
    ignored: Sequence[str] = (),
    *,
    default_max_tokens: int = NO_TOKEN_LIMIT,
    tokens: np.ndarray | None = None,
) -> NewRequest:
    """The request of POST /v1/completions. `tokens`: a prompt in place of the body's. Raises: Refusal naming the field."""
    texts, ids = prompts_of(body.prompt if tokens is None else tokens)
    new = body.new_request(
        api,
        name,
        origin,
        ignored,
        max_tokens=body.max_tokens if body.has_answer else 1,
        default_max_tokens=default_max_tokens if body.max_tokens is None else NO_TOKEN_LIMIT,
        logprobs=or_none(body.logprobs),
        prompt_logprobs=body.needed_prompt_logprobs,
        shown_prompt_logprobs=or_none(body.prompt_logprobs),
        with_token_ids=bool(body.return_token_ids),
        texts=texts,
        ids=ids,
        echo=bool(body.echo),
        has_answer=body.has_answer,
        prompt_field="prompt" if tokens is None else "tokens",
    )
    return new if body.best_of is None else _with_best_of(new, body, body.best_of)


def _with_best_of(new: NewRequest, body: CompletionBody, best_of: int) -> NewRequest:
    """The request for `best_of` answers to each prompt, of which `n` are shown. Raises: Refusal."""
    if best_of < new.n or (body.stream and best_of > new.n):
        raise invalid("best_of", f"the same as n ({new.n})" if body.stream else f"at least n ({new.n})", best_of)
    if best_of == new.n:
        return new
    best = BestOf(n_shown=new.n, shows_logprobs=new.sampling.logprobs >= 0)
    sampling = msgspec.structs.replace(new.sampling, logprobs=max(new.sampling.logprobs, 0))
    return msgspec.structs.replace(new, n=best_of, n_field="best_of", best_of=best, sampling=sampling)


def or_none(wanted: int | None) -> int:
    """A number of most probable tokens as a `Sampling` has it."""
    return -1 if wanted is None else wanted
