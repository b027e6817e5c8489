"""Ollama's endpoints that generate: `/api/generate` and `/api/chat`, streamed or whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal, TypeVar, get_type_hints

import msgspec
from starlette.types import ASGIApp

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import NewRequest, WantedReasoning
from actors.gateway.bodies.fields.foreign_fields import without_effect
from actors.gateway.bodies.fields.ranges import AnyInt, ModelName, TopKOrOff, TopLogprobs, Turns
from actors.gateway.bodies.fields.wanted_template import Effort
from actors.gateway.bodies.fields.wanted_tools import wanted_tools
from actors.gateway.bodies.schema import RequestFields
from actors.gateway.http.endpoint import Call, Endpoint, Services, forwarded, json_response, read
from actors.gateway.http.endpoints.streams import generated
from actors.gateway.http.formats.ollama_lines import content_of, time_text
from actors.gateway.http.request_identity import name_of
from actors.gateway.requests.model_names import check_model
from actors.gateway.requests.refusals import invalid
from actors.gateway.requests.request_spec import Api
from actors.gateway.text.template_options import PLAIN, TemplateOptions, thinking
from messages.generation.sampling import Sampling
from messages.generation.terms import NO_TOKEN_LIMIT

_OTHER_NAMES = {"repetition_penalty": "repeat_penalty"}  # of parameters that Ollama calls otherwise
_kinds = get_type_hints(Sampling, include_extras=True)
_OUR_NAMES = {_OTHER_NAMES.get(name, name): name for name in _kinds if name not in ("top_k", "seed", "logprobs")}
_DEFAULTS: dict[str, Any] = {"temperature": 0.8, "top_p": 0.9, "top_k": 40}  # Ollama's
IGNORED_OPTIONS = (  # how a server computes is the operator's to say
    *("num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "use_mmap", "use_mlock"),
    *("low_vram", "f16_kv", "vocab_only", "logits_all", "embedding_only", "repeat_last_n", "penalize_newline"),
    *("mirostat_eta", "mirostat_tau"),  # of mirostat, which is refused
)
_NOT_OFFERED_OPTIONS: dict[str, tuple[Any, ...]] = {"mirostat": (0,), "tfs_z": (1,), "typical_p": (1,)}
_NOT_OFFERED: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "images": ([],),
    "suffix": ("",),
    "template": ("",),
}

_Chosen = msgspec.defstruct(
    "_Chosen",
    [
        *((name, _kinds[ours] | None, None) for name, ours in _OUR_NAMES.items()),
        *((name, Any, None) for name in (*IGNORED_OPTIONS, *_NOT_OFFERED_OPTIONS)),
    ],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)


class OllamaOptions(_Chosen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`options`. None means Ollama's default."""

    num_predict: AnyInt | None = None  # below 1: up to the end of the context
    top_k: TopKOrOff | None = None
    seed: AnyInt | None = None  # below 0: another one for each request
    stop: str | list[str] | None = None

    def request_fields(self, *, stream: bool, grammar: dict[str, Any] | None) -> RequestFields:
        """The fields of our own with the same meaning. Raises: Refusal for an option that is not offered."""
        for name in _NOT_OFFERED_OPTIONS:
            without_effect(f"options.{name}", getattr(self, name), (), _TABLE_OF_OPTIONS)
        asked = {ours: getattr(self, name) for name, ours in _OUR_NAMES.items()} | {"top_k": self.top_k}
        given: dict[str, Any] = _DEFAULTS | {name: value for name, value in asked.items() if value is not None}
        given["seed"] = None if self.seed is None or self.seed < 0 else self.seed
        return RequestFields(**given, stop=self.stop, stream=stream, structured_outputs=grammar)


# Beside `options` these mean nothing to Ollama, and some clients send them there.
_PASSED_OVER = frozenset((*OllamaOptions.__struct_fields__, "repetition_penalty", "max_output_tokens", "tool_choice"))
_TABLE_OF_OPTIONS = {f"options.{name}": values for name, values in _NOT_OFFERED_OPTIONS.items()}


class ModelBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model, by one of the two names that Ollama's clients give this field."""

    model: ModelName | None = None
    name: ModelName | None = None

    def check_model(self, services: Services) -> None:
        """Return if it is the served model. Raises: Refusal."""
        check_model(self.asked_model, services.settings)

    @property
    def asked_model(self) -> str:
        """The name of the model, "" for any."""
        return self.model or self.name or ""


class _GeneratingBody(ModelBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    IGNORED: ClassVar = frozenset[str]()
    NOT_OFFERED: ClassVar = _NOT_OFFERED
    PASSED_OVER: ClassVar = _PASSED_OVER

    options: OllamaOptions | None = None
    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None  # "json", or the JSON schema of the answer
    think: bool | Effort | None = None  # None: as the model's template has it
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    keep_alive: float | str | None = None  # the model stays loaded as long as the server runs

    @property
    def wanted_logprobs(self) -> int:
        """How many alternatives to each token are wanted; -1: no log probabilities. Raises: Refusal."""
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", "logprobs: true beside it", self.top_logprobs)
        return self.top_logprobs or 0 if self.logprobs else -1

    @property
    def is_streamed(self) -> bool:
        """Streams are the default."""
        return self.stream is not False

    @property
    def template(self) -> TemplateOptions:
        """What `think` says to the template."""
        if self.think is None:
            return PLAIN
        effort = {"reasoning_effort": self.think} if isinstance(self.think, str) else {}
        return TemplateOptions({**effort, **thinking(is_on=self.think not in (False, "none"))})

    @property
    def grammar(self) -> dict[str, Any] | None:
        """`format` as `structured_outputs` has it."""
        if not self.format:
            return None
        return {"json_object": True} if self.format == "json" else {"json": self.format}


class OllamaGenerateBody(_GeneratingBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /api/generate."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None  # the prompt is not put into the model's template
    context: list[AnyInt] | None = None  # of an earlier answer, which this prompt goes on with


class OllamaChatBody(_GeneratingBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /api/chat."""

    messages: Turns | None = None
    tools: list[dict[str, Any]] | None = None


_Body = TypeVar("_Body", bound=_GeneratingBody)


async def generate(services: Services, call: Call) -> ASGIApp:
    """POST /api/generate: what follows a prompt, for Ollama's clients. Raises: Refusal."""
    return await _answered(services, call, OllamaGenerateBody, "ollama_generate", _prompt)


async def chat(services: Services, call: Call) -> ASGIApp:
    """POST /api/chat: the answer to a conversation, for Ollama's clients. Raises: Refusal."""
    return await _answered(services, call, OllamaChatBody, "ollama_chat", _conversation)


async def _answered(
    services: Services,
    call: Call,
    kind: type[_Body],
    api: Api,
    fields_of: Callable[[Services, Call, _Body], Awaitable[dict[str, Any] | None]],
) -> ASGIApp:
    """The answer to a call. `fields_of`: the fields of `NewRequest` that this kind of body gives; None: it asks for nothing."""
    if (elsewhere := await forwarded(services, call, call.identity.key)) is not None:
        return elsewhere
    body = await read(services, call, kind)
    body.check_model(services)
    fields = await fields_of(services, call, body)
    if fields is None:
        return _loaded(services, call, body, is_chat=api == "ollama_chat")
    return await generated(services, call, _new(services, call, body, api, **fields))


async def _conversation(services: Services, call: Call, body: OllamaChatBody) -> dict[str, Any] | None:
    """The conversation as fields of `NewRequest`. A message without content is an empty one, as Ollama reads it."""
    if not body.messages:
        return None
    for index, message in enumerate(body.messages):
        if message.get("images"):
            raise invalid(f"messages[{index}].images", "none (this server's models read text alone)", message["images"])
    messages = [message if message.get("content") is not None else {**message, "content": ""} for message in body.messages]
    return {"turns": turns_of(messages), "tools": wanted_tools({"tools": body.tools}), "prompt_field": "messages"}


async def _prompt(services: Services, call: Call, body: OllamaGenerateBody) -> dict[str, Any] | None:
    """The prompt as a field of `NewRequest`. A model without a chat template takes it as it is."""
    prompt = body.prompt
    if not prompt:
        return None
    for name in ("system", "context") if body.raw else ():
        if getattr(body, name):
            raise invalid(name, "nothing beside raw: true", getattr(body, name))
    has_template = bool(services.model.chat_template)
    if body.system and not has_template:
        raise invalid("system", "nothing, because this model has no chat template", body.system)
    if body.raw or not (has_template or body.context):
        return {"texts": [prompt]}
    turns = [{"role": "system", "content": body.system}] if body.system else []
    turns.append({"role": "user", "content": prompt})
    if not body.context:
        return {"turns": turns}
    encoder = services.admission.builder.encoder
    known = encoder.check_ids(body.context, "context").tolist()
    if has_template:
        added = await encoder.encode_chat(turns, "prompt", options=body.template, caller=call.origin.caller)
        return {"ids": [[*known, *added]]}
    added = (await encoder.encode([prompt], "prompt", caller=call.origin.caller))[0]
    return {"ids": [[*known, *added]]}


def _new(services: Services, call: Call, body: _GeneratingBody, api: Api, **fields: Any) -> NewRequest:
    """The request for admission. An answer that would be longer than the context ends with it, as Ollama's do."""
    settings, options = services.settings, body.options or OllamaOptions()
    name = name_of(
        call.identity,
        call.scope["path"],
        call.body,
        prefix="ollama-",
        mint=services.owners.mint,
        is_streamed=body.is_streamed and settings.journal_http_streams,
    )
    limit = options.num_predict if options.num_predict is not None and options.num_predict > 0 else NO_TOKEN_LIMIT
    if body.think and services.model.reasoning is None:
        raise invalid("think", "false, because this model does not think first", body.think)
    fields |= {"template": body.template, "reasoning": WantedReasoning(is_split=True), "logprobs": body.wanted_logprobs}
    asked = options.request_fields(stream=body.is_streamed, grammar=body.grammar)
    new = asked.new_request(api, name, call.origin, call.ignored, max_tokens=None, default_max_tokens=limit, **fields)
    return msgspec.structs.replace(new, grammar_field="format", stop_field="options.stop")


def _loaded(services: Services, call: Call, body: _GeneratingBody, *, is_chat: bool) -> ASGIApp:
    """The answer to a request without a prompt, with which clients load a model, or unload it by keep_alive 0."""
    why = "unload" if body.keep_alive in (0, "0", "0s", "0m") else "load"
    head = {"model": services.settings.model_name, "created_at": time_text(services.started_s)}
    return json_response({**head, **content_of("", is_chat=is_chat), "done": True, "done_reason": why}, ignored=call.ignored)


ENDPOINTS = (
    Endpoint("POST", "/api/generate", generate, needs_open=True, body=OllamaGenerateBody, generates=True),
    Endpoint("POST", "/api/chat", chat, needs_open=True, body=OllamaChatBody, generates=True),
)
