"""Fields of other APIs: values that ask for nothing are accepted everywhere; what would change an answer is never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.answers.short_bodies import BODIES
from tests.support.gateway.gateway_rig import rig

ASKS_FOR_NOTHING: dict[str, Any] = {
    "n": 1, "best_of": 1, "logprobs": False, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0,
    "logit_bias": {},
    "repetition_penalty": 1, "min_p": 0, "min_tokens": 0, "stop_token_ids": [], "bad_words": [], "skip_special_tokens": True,
    "store": False, "metadata": {"a": "b"}, "user": "me", "service_tier": "auto", 
    "parallel_tool_calls": True, "verbosity": "low",
    "prompt_cache_key": "k", "prompt_cache_retention": "24h", "safety_identifier": "s", "response_format": {"type": "text"},
    "chat_template_kwargs": {}, "add_generation_prompt": True, "ignore_eos": False, "echo": False, "priority": 0, "suffix": "",
}  # fmt: skip
INSTEAD = [
    ("/v1/chat/completions", "system", "x", 'messages with the role "system"'),
    ("/v1/chat/completions", "max_output_tokens", 4, "max_tokens"),
    ("/v1/chat/completions", "num_predict", 4, "max_tokens"),
    ("/v1/chat/completions", "input", "x", "messages"),
    ("/v1/completions", "instructions", "x", "prompt"),
    ("/v1/completions", "stop_sequences", ["x"], "stop"),
    ("/v1/responses", "system", "x", "instructions"),
    ("/v1/responses", "max_tokens", 4, "max_output_tokens"),
    ("/v1/responses", "max_completion_tokens", 4, "max_output_tokens"),
    ("/v1/responses", "reasoning_effort", "low", "reasoning.effort"),
    ("/v1/responses", "response_format", {"type": "json_object"}, "text.format"),
    ("/v1/messages", "instructions", "x", "system"),
    ("/v1/messages", "max_new_tokens", 4, "max_tokens"),
]


@pytest.mark.parametrize("path", BODIES)
async def test_values_that_ask_for_nothing_are_accepted(path: str) -> None:
    async with rig() as r, r.http() as http:
        for name, value in ASKS_FOR_NOTHING.items():
            answer = await http.post(path, json={**BODIES[path], name: value})
            assert answer.status_code == 200, (name, answer.text)
        for special in {"/v1/chat/completions": [False], "/v1/completions": [True]}.get(path, []):
            assert (await http.post(path, json={**BODIES[path], "add_special_tokens": special})).status_code == 200
        zero = await http.post(path, json={**BODIES[path], "logprobs": 0})  # no `false`, though Python says so
        assert (zero.status_code == 200) is (path in ("/v1/completions", "/v1/generate"))


async def test_another_name_of_a_field_is_refused_with_the_right_one() -> None:
    async with rig() as r, r.http() as http:
        for path, name, value, instead in INSTEAD:
            answer = await http.post(path, json={**BODIES[path], name: value})
            assert answer.status_code == 400, (path, name)
            assert f"{name}: unknown field; expected {instead} instead" in answer.json()["error"]["message"]
            assert (await http.post(path, json={**BODIES[path], name: None})).status_code == 200
