"""What the fields of a chat ask of the model's template and of its reasoning, in the names of OpenAI, vLLM and SGLang."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from actors.gateway.admission.new_request import WantedReasoning
from actors.gateway.requests.refusals import invalid
from actors.gateway.text.template_options import TemplateOptions, thinking

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
TEMPLATE_FIELDS = (
    *("chat_template_kwargs", "reasoning_effort", "include_reasoning", "separate_reasoning"),
    *("add_generation_prompt", "continue_final_message", "thinking_token_budget"),
)
_MOST_VARIABLES = 32
_TAKEN = frozenset(("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"))
_PLAIN_TEXT = re.compile(r"[\w .,:;+/-]{0,256}")  # no control token of any model, which only the template may write


def wanted_template(fields: Mapping[str, Any]) -> TemplateOptions:
    """The options for the template. fields: values by name; None is not given. Raises: Refusal naming the field."""
    given, effort = fields.get("chat_template_kwargs") or {}, fields.get("reasoning_effort")
    variables: dict[str, Any] = {}
    if effort is not None:
        variables = {"reasoning_effort": effort, **thinking(is_on=effort != "none")}
    has_head, continues_last = fields.get("add_generation_prompt"), fields.get("continue_final_message")
    if has_head and continues_last:
        raise invalid("continue_final_message", "false beside add_generation_prompt: true", True)
    return TemplateOptions({**variables, **checked_variables(given)}, has_head is not False, bool(continues_last))


def wanted_reasoning(fields: Mapping[str, Any]) -> WantedReasoning:
    """How the reasoning is treated."""
    is_split, is_shown = (fields.get(name) is not False for name in ("separate_reasoning", "include_reasoning"))
    return WantedReasoning(is_split, is_shown, fields.get("thinking_token_budget"))


def checked_variables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Variables that a client has given for the template. Raises: Refusal."""
    field = "chat_template_kwargs"
    if len(given) > _MOST_VARIABLES:
        raise invalid(field, f"at most {_MOST_VARIABLES} variables", len(given))
    for name, value in given.items():
        if name in _TAKEN or name.endswith("_token"):
            raise invalid(field, "variables that the server does not set itself", name)
        if isinstance(value, str) and not _PLAIN_TEXT.fullmatch(value):
            raise invalid(f"{field}.{name}", "text of at most 256 letters, digits, blanks and . , : ; + / -", value)
        if value is not None and not isinstance(value, str | int | float | bool):
            raise invalid(f"{field}.{name}", "true, false, a number or a text", value)
    return dict(given)


def check_continued(turns: Sequence[Mapping[str, Any]], field: str) -> None:
    """Return if the last turn is an answer that can be continued. Raises: Refusal."""
    last = turns[-1]
    if last["role"] != "assistant" or not last["content"].strip():
        raise invalid(field, "the last message to be the assistant's, with text, to continue it", last["role"])
