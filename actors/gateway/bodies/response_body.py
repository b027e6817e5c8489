"""The body of a request to /v1/responses: its fields, what they ask for, and the fields of the answer that repeat them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from actors.gateway.bodies.fields.offered_fields import offered_fields, with_offered_fields
from actors.gateway.bodies.fields.ranges import AnyInt, ModelName, TopLogprobs
from actors.gateway.bodies.fields.told_tools import is_told, response_tools
from actors.gateway.bodies.fields.wanted_template import Effort, wanted_template
from actors.gateway.bodies.schema import RequestFields, StreamOptions
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.text.template_options import TemplateOptions
from actors.gateway.text.tools.offered import OfferedTools

_Name = Annotated[str, msgspec.Meta(max_length=512)]
_LOGPROBS = "message.output_text.logprobs"
_UNTOLD = {"description": None, "parameters": None, "strict": False}  # of a tool, in answers
_FORMATS = ("text", "json_object", "json_schema")
_Offered = with_offered_fields(msgspec.Struct)


class TextSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The field `text`: what the text of the answer looks like."""

    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None  # repeated in the answer, without effect


class ReasoningSettings(msgspec.Struct, frozen=True):
    """The field `reasoning`. Only `effort` has an effect."""

    effort: Effort | None = None
    summary: str | None = None
    generate_summary: str | None = None  # the older name of the same


class ResponsesBody(_Offered, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/responses, with the fields of sampling and terms. None means the default."""

    IGNORED: ClassVar = frozenset(
        ("service_tier", "prompt_cache_retention", "prompt_cache_options", "max_tool_calls", "client_metadata")
    )
    NOT_OFFERED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "truncation": ("disabled",),
        "conversation": (),
        "prompt": (),
        "context_management": ([],),
        "moderation": (),
        "modalities": (["text"],),
    }

    input: str | list[dict[str, Any]]
    model: ModelName | None = None
    instructions: str | None = None
    previous_response_id: _Name | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: AnyInt | None = None
    top_logprobs: TopLogprobs | None = None
    text: TextSettings | None = None
    include: list[str] | None = None  # log-probabilities are the only value with an effect
    metadata: dict[str, str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningSettings | None = None
    prompt_cache_key: _Name | None = None
    safety_identifier: _Name | None = None
    user: _Name | None = None
    stop: str | list[str] | None = None  # not OpenAI's, as at the other endpoints

    @property
    def is_stored(self) -> bool:
        """Responses are stored unless the client says otherwise."""
        return self.store is not False

    @property
    def wanted_logprobs(self) -> int:
        """-1: none; otherwise the number of alternatives."""
        is_wanted = self.top_logprobs or _LOGPROBS in (self.include or ())
        return self.top_logprobs or 0 if is_wanted else -1

    @property
    def effort(self) -> Effort | None:
        """How much the model should think; None: the model decides."""
        return self.reasoning.effort if self.reasoning is not None else None

    @property
    def template(self) -> TemplateOptions:
        """The options for the model's template."""
        return wanted_template({"reasoning_effort": self.effort})

    @property
    def offered_tools(self) -> OfferedTools | None:
        """The tools that the answer may call. Raises: Refusal naming the field."""
        return response_tools(self.tools or (), self.tool_choice, is_parallel=self.parallel_tool_calls is not False)

    def check(self) -> None:
        """Return if the fields agree with each other. Raises: Refusal."""
        if self.background and not self.is_stored:
            raise invalid("background", "store: true beside it, because its answer is asked for later", True)
        if self.stream_options is not None and not self.stream:
            raise Refusal("invalid", "stream_options: expected stream: true beside it, got none", field="stream_options")

    def request_fields(self) -> RequestFields:
        """The fields that all APIs have, under their names. Raises: Refusal."""
        own: dict[str, Any] = {"model": self.model, "stream": self.stream, "stop": self.stop}
        return RequestFields(**own, **offered_fields(self), structured_outputs=self._grammar())

    def shown(self) -> dict[str, Any]:
        """The fields of the answer that repeat those of the request, whose tools have been checked."""
        settings = self.text or TextSettings()
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": self.effort, "summary": None},
            "safety_identifier": self.safety_identifier,
            "text": {"format": settings.format or {"type": "text"}, "verbosity": settings.verbosity or "medium"},
            "tool_choice": self.tool_choice or "auto",
            "tools": _shown_tools(self.tools or ()),
            "truncation": "disabled",
            "user": self.user,
        }

    def _grammar(self) -> dict[str, Any] | None:
        """`text.format` as `structured_outputs` has it."""
        wanted = self.text.format if self.text is not None else None
        if wanted is None:
            return None
        kind = wanted.get("type")
        if kind not in _FORMATS:
            raise invalid("text.format.type", f"one of {', '.join(_FORMATS)}", kind)
        if kind == "text":
            return None
        if kind == "json_object":
            return {"json_object": True}
        if not isinstance(schema := wanted.get("schema"), dict):
            raise invalid("text.format.schema", "a JSON schema", schema)
        return {"json": schema}


def _shown_tools(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools that the model is told of, as answers repeat them."""
    return [_shown_tool(tool) for tool in tools if is_told(tool)]


def _shown_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as answers repeat it, also a function that came in the form of chat completions."""
    if tool["type"] != "function":
        return {**tool, "tools": _shown_tools(tool["tools"])} if "tools" in tool else tool
    fields = {**tool, **tool.get("function", {})}
    return {**_UNTOLD, **{name: value for name, value in fields.items() if name != "function"}}
