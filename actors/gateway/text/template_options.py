"""What a request says about the chat template: variables for it, and where its prompt ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TemplateOptions:
    """`variables`: for the template, beside the conversation. `has_answer_head`: the prompt ends with what begins an answer.
    `continues_last`: the prompt ends with the text of the last message, and the answer continues that text.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    has_answer_head: bool = True
    continues_last: bool = False


PLAIN = TemplateOptions()


def thinking(*, is_on: bool) -> dict[str, Any]:
    """The variables that tell templates whether the model thinks first, under the names of Qwen and of DeepSeek."""
    return {"enable_thinking": is_on, "thinking": is_on}
