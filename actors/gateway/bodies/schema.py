"""The JSON bodies that clients may send, as typed structs with OpenAI's field names.

`fields/` decides about all other fields. A body of another API has its own tables for that: `IGNORED` and `NOT_OFFERED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from actors.gateway.admission.new_request import NewRequest, WantedReasoning
from actors.gateway.bodies.body_errors import unreadable, wrong_field
from actors.gateway.bodies.fields.foreign_fields import NOT_OFFERED_FIELDS, drop_unused
from actors.gateway.bodies.fields.offered_fields import SAMPLING, TERMS, with_offered_fields
from actors.gateway.bodies.fields.ranges import (
    AnyInt,
    ModelName,
    ResponseFormat,
    StructuredOutputs,
    ToolObject,
    TopKOrOff,
    TopLogprobs,
    Turns,
)
from actors.gateway.bodies.fields.unknown_fields import header_of, take_unknown
from actors.gateway.bodies.fields.wanted_grammar import wanted_grammar
from actors.gateway.bodies.fields.wanted_template import TEMPLATE_FIELDS, Effort, wanted_reasoning, wanted_template
from actors.gateway.bodies.fields.wanted_tools import wanted_tools
from actors.gateway.bodies.integral_floats import make_integers
from actors.gateway.bodies.request_name import Origin, RequestName
from actors.gateway.requests.refusals import Refusal, invalid, json_text
from actors.gateway.requests.request_spec import Api
from actors.gateway.text.template_options import TemplateOptions
from actors.gateway.text.tools.offered import OfferedTools
from messages.generation.grammar import Grammar
from messages.generation.sampling import Sampling
from messages.generation.terms import NO_TOKEN_LIMIT, Terms
from messages.ids import seed_of

_SEED_MASK = 2**63 - 1


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`stream_options`."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # accepted; padding is never sent
    continuous_usage_stats: bool | None = None  # with include_usage: every event has the usage so far


_GRAMMARS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
_TOOLS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")
_Offered = with_offered_fields(msgspec.Struct)


class RequestFields(_Offered, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that every route has: those of sampling and terms, and these. None means the default, as in OpenAI's API."""

    model: ModelName | None = None
    top_k: TopKOrOff | None = None
    seed: AnyInt | None = None
    max_tokens: AnyInt | None = None  # checked by admission, which knows the prompt's length
    n: AnyInt | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[AnyInt] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    def sampling(self, request_id: str, logprobs: int) -> Sampling:
        """The `Sampling` of this body, with a seed derived from the request's id if the client gives none. `logprobs` -1: none.

        So a client that sends a request again to another gateway, which does not know it, gets the same tokens. A minted id is
        random, and so is its seed.
        """
        given = _given(self, SAMPLING)
        given["top_k"] = max(_or(self.top_k, 0), 0)
        given["seed"] = seed_of(request_id) if self.seed is None else self.seed & _SEED_MASK
        return Sampling(**given, logprobs=logprobs)

    def terms(self, max_tokens: int | None, origin: Origin, grammar: Grammar | None = None, prompt_logprobs: int = -1) -> Terms:
        """The `Terms` of this body. `max_tokens` None: up to the context length."""
        given = _given(self, TERMS)
        if not origin.allows_fallback:
            given["allow_fallback"] = False
        given["max_tokens"] = _or(max_tokens, NO_TOKEN_LIMIT)
        given["stop"] = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Terms(
            **given,
            stop_tokens=self.stop_token_ids or [],
            trace_id=origin.trace_id,
            caller=origin.caller,
            grammar=grammar,
            prompt_logprobs=prompt_logprobs,
        )

    @property
    def n_or_one(self) -> int:
        """Number of answers to each prompt."""
        return _or(self.n, 1)

    def new_request(
        self, api: Api, name: RequestName, origin: Origin, ignored: Sequence[str], *,
        max_tokens: int | None, logprobs: int = -1, prompt_logprobs: int = -1, **fields: Any,
    ) -> NewRequest:  # fmt: skip
        """The request for admission. `fields`: those of `NewRequest` that differ from route to route. Raises: Refusal."""
        grammar, grammar_field = wanted_grammar(grammars) if (grammars := _given(self, _GRAMMARS)) else (None, "")
        options = self.stream_options or StreamOptions()
        return NewRequest(
            **fields,
            request=name.request,
            request_field=name.request_field,
            naming=name.naming,
            is_resumable=name.is_resumable,
            ends_with_client=name.ends_with_client,
            must_be_known=name.must_be_known,
            digest=name.digest,
            answer_id=name.answer_id,
            correlation_id=origin.correlation_id,
            trace=origin.trace,
            cache_use=origin.cache_use,
            has_seed=self.seed is not None,
            api=api,
            sampling=self.sampling(name.request, logprobs),
            defaulted=frozenset([name for name in SAMPLING if getattr(self, name) is None]),
            terms=self.terms(max_tokens, origin, grammar, prompt_logprobs),
            grammar_field=grammar_field or "grammar",
            model=self.model or "",
            n=self.n_or_one,
            is_whole=not self.stream,
            with_usage=bool(options.include_usage),
            with_running_usage=bool(options.include_usage and options.continuous_usage_stats),
            ignored_fields=header_of(ignored) if ignored else "",
        )


class ChatBody(RequestFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions."""

    # a conversation has the special tokens of its template
    NOT_OFFERED: ClassVar = {**NOT_OFFERED_FIELDS, "add_special_tokens": (False,)}

    messages: Turns
    tools: list[ToolObject] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None  # older than `tools`, as is `function_call`
    function_call: str | dict[str, Any] | None = None
    max_completion_tokens: AnyInt | None = None
    logprobs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Effort | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    thinking_token_budget: AnyInt | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    top_logprobs: TopLogprobs | None = None
    prompt_logprobs: TopLogprobs | None = None
    return_token_ids: bool | None = None

    @property
    def offered_tools(self) -> OfferedTools | None:
        """The tools that the answer may call. Raises: Refusal naming the field."""
        return wanted_tools(_given(self, _TOOLS))

    @property
    def template(self) -> TemplateOptions:
        """The options for the model's template. Raises: Refusal naming the field."""
        return wanted_template(_given(self, TEMPLATE_FIELDS))

    @property
    def reasoning(self) -> WantedReasoning:
        """How the model's reasoning is treated."""
        return wanted_reasoning(_given(self, TEMPLATE_FIELDS))

    @property
    def wanted_logprobs(self) -> int:
        """-1: none; otherwise the number of alternatives. Raises: Refusal naming the field."""
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", "logprobs: true beside it", self.top_logprobs)
        return _or(self.top_logprobs, 0) if self.logprobs else -1


class CompletionBody(RequestFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions."""

    prompt: str | list[Any]
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    best_of: AnyInt | None = None
    prompt_logprobs: TopLogprobs | None = None
    return_token_ids: bool | None = None

    @property
    def has_answer(self) -> bool:
        """False if only the prompts are of interest: `max_tokens` 0."""
        return self.max_tokens != 0

    @property
    def needed_prompt_logprobs(self) -> int:
        """Most probable tokens at each place of the prompts that the answer shows in one of its fields; -1: none."""
        echoed = self.logprobs if self.echo else None
        return max(_or(self.prompt_logprobs, -1), _or(echoed, -1))


class GenerateBody(RequestFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/generate: one prompt, as text or as token ids."""

    prompt: str | None = None
    tokens: list[AnyInt] | None = None
    logprobs: TopLogprobs | None = None
    request_id: str | None = None  # checked by the endpoint, by the rule of the header Idempotency-Key


class BatchBody(RequestFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/batch: many prompts at once, or many requests, each with fields of its own."""

    prompts: list[str] | None = None
    tokens: list[list[AnyInt]] | None = None
    requests: list[dict[str, Any]] | None = None


OWN_FIELDS = frozenset(name for body in (ChatBody, CompletionBody, GenerateBody, BatchBody) for name in body.__struct_fields__)
B = TypeVar("B", bound=msgspec.Struct)
_json = msgspec.json.Decoder()


def read_body(raw: bytes | bytearray, kind: type[B], ignored: list[str] | None = None) -> B:
    """A request body as its struct. `ignored`: the names of unknown fields are appended to it; None: such a field is refused.

    Raises: Refusal naming the field, what was expected and what came.
    """
    try:
        fields = _json.decode(raw)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise unreadable(error, raw) from None
    if not isinstance(fields, dict):
        raise Refusal("invalid", f"body: expected a JSON object, got {json_text(fields)}")
    drop_unused(fields, kind)
    if ignored is not None:
        take_unknown(fields, kind, OWN_FIELDS, ignored)
    while True:
        try:
            return msgspec.convert(fields, kind)
        except msgspec.ValidationError as error:
            if not make_integers(fields, error):
                raise wrong_field(error, fields, kind, ignored or ()) from None


T = TypeVar("T")


def _given(body: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """The values of those fields that the client has set, by name."""
    return {name: value for name in names if (value := getattr(body, name)) is not None}


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
