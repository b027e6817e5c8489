"""How models mark their reasoning: a table by the names that other servers use, and which of them a chat template has."""

from __future__ import annotations

from actors.gateway.text.reasoning_text import ReasoningMarks
from messages.errors import ConfigError

_THINK = ReasoningMarks("<think>", "</think>")
# the answer begins with the reasoning, although neither the prompt nor the answer has the first mark
_ALWAYS_THINK = ReasoningMarks("<think>", "</think>", is_open=True)
FORMATS = {
    "qwen3": _THINK,
    "glm45": _THINK,
    "deepseek_v3": _THINK,
    "nemotron_v3": _THINK,
    "smollm3": _THINK,
    "deepseek_r1": _ALWAYS_THINK,
    "minimax_m2": _ALWAYS_THINK,
    "mistral": ReasoningMarks("[THINK]", "[/THINK]"),
    "seed_oss": ReasoningMarks("<seed:think>", "</seed:think>"),
    "kimi_vl": ReasoningMarks("◁think▷", "◁/think▷"),
    "granite": ReasoningMarks("Here is my thought process:", "Here is my response:"),
}
_FOUND_IN_TEMPLATES = ("qwen3", "seed_oss", "mistral", "kimi_vl")  # by their last mark, in this order
AUTO, NONE = "auto", "none"


def marks_of(name: str, template: str) -> ReasoningMarks | None:
    """The marks of a model's reasoning; None: it has none. `name`: one of `FORMATS`, "none", or "auto": the marks that stand in
    its chat template. Raises: ConfigError for another name.
    """
    if name == AUTO:
        found = (FORMATS[known] for known in _FOUND_IN_TEMPLATES if FORMATS[known].end in template)
        return next(found, None)
    if name != NONE and name not in FORMATS:
        raise ConfigError(f"gateway.reasoning: expected one of {AUTO}, {NONE}, {', '.join(FORMATS)}, got {name!r}")
    return FORMATS.get(name)


def begins_open(marks: ReasoningMarks, end_of_prompt: str) -> bool:
    """True if an answer begins within the reasoning. `end_of_prompt`: the last text of its prompt."""
    return marks.is_open or end_of_prompt.rfind(marks.begin) > end_of_prompt.rfind(marks.end)
