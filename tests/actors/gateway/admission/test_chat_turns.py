"""What chat messages may not have, and calls whose arguments are no JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.requests.refusals import Refusal
from actors.gateway.text.tools.telling import told


@pytest.mark.parametrize("role", [None, "robot", 3, ["user"], {"user": 1}])
def test_a_role_that_is_none_is_refused(role: Any) -> None:
    with pytest.raises(Refusal, match=r"messages\[0\]\.role: expected one of "):
        turns_of([{"role": role, "content": "hi"}])


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": [-Infinity]}', '{"a": 1e999}', "{", "[1]"])
def test_arguments_that_are_no_json_object_stay_a_text(text: str) -> None:
    """Also numbers that Python reads and JSON lacks: they could not be written into the prompt."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": text}}
    turns = turns_of([{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}])
    assert turns[1]["tool_calls"][0]["function"]["arguments"] == text
    assert json.dumps(text) in told(turns, [])[1]["content"]
