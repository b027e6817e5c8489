"""Anthropic's endpoints: `/v1/messages`, streamed or whole, and the number of tokens that a conversation has."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from starlette.types import ASGIApp

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import WantedReasoning
from actors.gateway.bodies.fields.anthropic_tools import anthropic_tools, as_openai
from actors.gateway.bodies.fields.offered_fields import offered_fields, with_offered_fields
from actors.gateway.bodies.fields.ranges import MaxTurns, ModelName, turn_by
from actors.gateway.bodies.fields.wanted_template import check_continued
from actors.gateway.bodies.schema import RequestFields
from actors.gateway.http.endpoint import Call, Endpoint, Services, forwarded, json_response, read
from actors.gateway.http.endpoints.streams import generated
from actors.gateway.http.errors import THREAD_FIELD
from actors.gateway.http.request_identity import name_of
from actors.gateway.requests.model_names import check_model
from actors.gateway.requests.refusals import invalid
from actors.gateway.text.template_options import TemplateOptions, thinking
from actors.gateway.text.tools.offered import OfferedTools
from messages.generation.terms import MaxTokens

PATH = "/v1/messages"
_ROLES = ("user", "assistant", "system")
_BETWEEN = "\n\n"
_THOUGHTS = ("thinking", "redacted_thinking")
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_BETA = ("beta",)  # in the address of what Anthropic's client calls beta


class OutputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`output_config`."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None  # without effect
    format: dict[str, Any] | None = None


class _Conversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    IGNORED: ClassVar = frozenset(("metadata", "service_tier", "inference_geo", "cache_control"))
    NOT_OFFERED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "mcp_servers": ([],),
        "container": (),
        "compaction": (),  # the answer would be a summary
        THREAD_FIELD: (),  # the server would know what was said before
    }

    messages: Annotated[list[Annotated[dict[str, Any], turn_by(_ROLES)]], MaxTurns]
    model: ModelName | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None  # the older name of `output_config.format`

    @property
    def schema(self) -> tuple[dict[str, Any] | None, str]:
        """(the JSON schema that the answer must match, the name of its field), or (None, ""). Raises: Refusal."""
        own = self.output_config.format if self.output_config is not None else None
        wanted, field = (own, "output_config.format") if own is not None else (self.output_format, "output_format")
        if wanted is None:
            return None, ""
        if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), dict):
            raise invalid(field, '{"type": "json_schema", "schema": ...}', wanted)
        return wanted["schema"], field

    @property
    def template(self) -> TemplateOptions:
        """Anthropic's models think only if they are told to, and go on with a last message of their own. Raises: Refusal."""
        kind = (self.thinking or {}).get("type", "disabled")
        if kind not in ("enabled", "adaptive", "disabled"):
            raise invalid("thinking.type", "enabled, adaptive or disabled", kind)
        is_continued = bool(self.messages) and self.messages[-1].get("role") == "assistant"
        return TemplateOptions(thinking(is_on=kind != "disabled"), continues_last=is_continued)

    @property
    def reasoning(self) -> WantedReasoning:
        """What becomes of the reasoning: it stands in blocks of its own, and `budget_tokens` limit it. Raises: Refusal."""
        field, given = "thinking.budget_tokens", (self.thinking or {}).get("budget_tokens")
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
            raise invalid(field, "0 or more", given)
        return WantedReasoning(is_split=True, budget_tokens=given, budget_field=field)

    @property
    def offered_tools(self) -> OfferedTools | None:
        """The tools that the answer may call. Raises: Refusal naming the field."""
        return anthropic_tools(self.tools, self.tool_choice, self.messages)

    def turns(self) -> list[dict[str, Any]]:
        """The turns for the model's template. Raises: Refusal."""
        for index, message in enumerate(self.messages):
            if message.get("role") not in _ROLES:
                raise invalid(f"messages[{index}].role", f"one of {', '.join(_ROLES)}", message.get("role"))
        messages = [one for at, message in enumerate(self.messages) for one in as_openai(_told(message), f"messages[{at}]")]
        turns = turns_of(messages)
        if turns[-1]["role"] == "assistant":
            check_continued(turns, "messages")
        before = [{"role": "system", "content": _system_text(self.system)}] if self.system else []
        return _joined([*before, *turns])


_Offered = with_offered_fields(_Conversation)


class _SampledConversation(_Offered, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stop_sequences: list[str] | None = None
    temperature: _Share | None = None
    stream: bool | None = None


class MessagesBody(_SampledConversation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages, with the fields of sampling and terms."""

    max_tokens: MaxTokens


class CountTokensBody(_SampledConversation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages/count_tokens. The fields of a message that is to be generated have no effect here."""

    NOT_OFFERED: ClassVar = {name: some for name, some in _Conversation.NOT_OFFERED.items() if name != "compaction"}

    max_tokens: MaxTokens | None = None


async def messages(services: Services, call: Call) -> ASGIApp:
    """POST /v1/messages: the answer to a conversation, for Anthropic's clients. An answer ends when the context is full.
    Raises: Refusal."""
    if (elsewhere := await forwarded(services, call, call.identity.key)) is not None:
        return elsewhere
    body = await read(services, call, MessagesBody)
    is_streamed = bool(body.stream) and services.settings.journal_http_streams
    name = name_of(call.identity, PATH, call.body, prefix="msg_", mint=services.owners.mint, is_streamed=is_streamed)
    schema, schema_field = body.schema
    grammar = {"structured_outputs": {"json": schema}} if schema is not None else {}
    own: dict[str, Any] = {**grammar, "model": body.model, "stream": body.stream, "stop": body.stop_sequences}
    new = RequestFields(**own, **offered_fields(body)).new_request(
        "messages",
        name,
        call.origin,
        call.ignored,
        max_tokens=None,
        default_max_tokens=body.max_tokens,
        turns=body.turns(),
        tools=body.offered_tools,
        template=body.template,
        reasoning=body.reasoning,
        prompt_field="messages",
        stop_field="stop_sequences",
    )
    return await generated(services, call, msgspec.structs.replace(new, grammar_field=schema_field) if schema_field else new)


async def count_tokens(services: Services, call: Call) -> ASGIApp:
    """POST /v1/messages/count_tokens: how many tokens a conversation has. Raises: Refusal."""
    body = await read(services, call, CountTokensBody)
    check_model(body.model or "", services.settings)
    tools = body.offered_tools
    told = tools.as_openai() if tools is not None else ()
    encoder = services.admission.builder.encoder
    ids = await encoder.encode_chat(body.turns(), "messages", told, body.template, caller=call.origin.caller)
    return json_response({"input_tokens": len(ids)}, ignored=call.ignored)


def _told(message: dict[str, Any]) -> dict[str, Any]:
    """A message without the thinking blocks that clients send back: a model is not shown its earlier reasoning."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return message
    return {**message, "content": [b for b in content if not (isinstance(b, dict) and b.get("type") in _THOUGHTS)]}


def _joined(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns with those of the user in a row as one, and what the system says later as the user's.

    Anthropic's API joins turns too. Many templates take no system turn but the first, and refuse two turns of a user in a row.
    """
    joined: list[dict[str, Any]] = []
    for turn in turns:
        is_late = turn["role"] == "system" and any(one["role"] != "system" for one in joined)
        one = {**turn, "role": "user"} if is_late else turn
        if joined and one["role"] in ("user", "system") and one["role"] == joined[-1]["role"]:
            joined[-1] = {**one, "content": joined[-1]["content"] + _BETWEEN + one["content"]}
        else:
            joined.append(one)
    return joined


def _system_text(system: str | list[dict[str, Any]] | None) -> str:
    """The system prompt, which may come as blocks of text. Raises: Refusal."""
    if not isinstance(system, list):
        return system or ""
    for index, block in enumerate(system):
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise invalid(f"system[{index}]", '{"type": "text", "text": ...}', block)
    return "".join(block["text"] for block in system)


ENDPOINTS = (
    Endpoint("POST", PATH, messages, needs_open=True, query=_BETA, body=MessagesBody, generates=True),
    Endpoint("POST", PATH + "/count_tokens", count_tokens, query=_BETA, body=CountTokensBody),
)
