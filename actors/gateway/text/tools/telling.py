"""Tells a model of tools whose chat template does not know any. Pure.

The tools stand in the system message; calls and results are plain text. The calls are in Hermes' dialect, which many models
have met in training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from actors.gateway.text.tools.call_splitter import json_text

_SHORT = re.compile(r"[a-zA-Z0-9]{9}")
_TELLING = """# Tools

You can call tools to answer the user. These are the tools, one JSON object each:
<tools>
{tools}
</tools>

To call a tool, write its name and its arguments as a JSON object within the marks <tool_call></tool_call>:
<tool_call>
{{"name": <name of the tool>, "arguments": <JSON object with its arguments>}}
</tool_call>"""


def told(turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The turns with everything about tools written into their contents. `tools`: in OpenAI's format. Results of calls become
    turns of the user."""
    plain: list[Mapping[str, Any]] = []
    for turn in turns:
        if turn["role"] == "tool":
            result = f"<tool_response>\n{turn['content']}\n</tool_response>"
            if plain and plain[-1].get("is_result"):
                plain[-1] = {**plain[-1], "content": f"{plain[-1]['content']}\n{result}"}
            else:
                plain.append({"role": "user", "content": result, "is_result": True})
        elif calls := turn.get("tool_calls"):
            lines = [turn["content"]] if turn["content"] else []
            lines += [f"<tool_call>\n{json_text(_call(call))}\n</tool_call>" for call in calls]
            plain.append({"role": turn["role"], "content": "\n".join(lines)})
        else:
            plain.append(turn)
    plain = [{name: value for name, value in turn.items() if name != "is_result"} for turn in plain]
    if not tools:
        return plain
    text = _TELLING.format(tools="\n".join(json_text(tool.get("function", tool)) for tool in tools))
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{text}"}, *plain[1:]]
    return [{"role": "system", "content": text}, *plain]


def concerns_tools(turns: Sequence[Mapping[str, Any]]) -> bool:
    """True if a turn calls a tool, or is the result of one."""
    return any(turn["role"] == "tool" or "tool_calls" in turn for turn in turns)


def with_short_ids(turns: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The turns with ids of calls as Mistral's templates take them: nine letters and digits."""
    short: list[Mapping[str, Any]] = []
    for turn in turns:
        ours = dict(turn)
        if calls := turn.get("tool_calls"):
            ours["tool_calls"] = [{**call, "id": _short(call.get("id", ""))} for call in calls]
        if turn["role"] == "tool":
            ours["tool_call_id"] = _short(turn.get("tool_call_id", ""))
        short.append(ours)
    return short


def _short(call_id: str) -> str:
    return call_id if _SHORT.fullmatch(call_id) else blake2b(call_id.encode(), digest_size=5).hexdigest()[:9]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {"name": function["name"], "arguments": function["arguments"]}
