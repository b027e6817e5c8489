"""How the text of the answers to a request is split into reasoning, calls of tools and content. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.text.channels import Splitting
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.reasoning_formats import begins_open
from actors.gateway.text.reasoning_text import ReasoningMarks

_MOST_MARK_TOKENS = 16  # at the end of a prompt, where reasoning may be open


def splitting_of(new: NewRequest, prompt: np.ndarray, model: TextModel) -> Splitting | None:
    """How the answers are split; None: they are not. `prompt`: the first one, int32 [n]."""
    reasoning = _reasoning(new, prompt, model)
    tools = new.tools.rules(model.dialect) if new.tools is not None else None
    return Splitting(reasoning=reasoning, tools=tools) if reasoning is not None or tools is not None else None


def _reasoning(new: NewRequest, prompt: np.ndarray, model: TextModel) -> ReasoningMarks | None:
    """The marks of the reasoning in the answers; None: it is not looked for."""
    marks, wanted = model.reasoning, new.reasoning
    if marks is None or not wanted.is_split:
        return None
    if new.turns is not None and new.template.continues_last:
        end_of_prompt = str(new.turns[-1]["content"])
    else:
        end_of_prompt = model.decode(prompt[-_MOST_MARK_TOKENS:].tolist())
    return msgspec.structs.replace(marks, is_open=begins_open(marks, end_of_prompt), is_shown=wanted.is_shown)
