"""What other servers tell too: usage so far, system_fingerprint, settings of the tokenizer, shares of caches and drafts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from messages.generation.sequences import Work
from tests.support.gateway.gateway_rig import rig

pytestmark = pytest.mark.slow

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "temperature": 0}
N_PROMPT = len("user: hi\nassistant: ")


def chunks_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


async def test_every_event_tells_the_usage_so_far() -> None:
    async with rig() as r, r.http() as http:
        options = {"include_usage": True, "continuous_usage_stats": True}
        for body in (CHAT, {**CHAT, "n": 2, "logprobs": True}):
            streamed = (await http.post("/v1/chat/completions", json={**body, "stream": True, "stream_options": options})).text
            told = [(chunk["choices"], chunk["usage"]) for chunk in chunks_of(streamed)]
            first = [usage["completion_tokens"] for choices, usage in told if choices and choices[0]["index"] == 0]
            assert first == [0, 1, 2, 3, 3]
            assert all(usage["total_tokens"] == N_PROMPT + usage["completion_tokens"] for _, usage in told)
        plain = {"prompt": '],"usage":null}\n', "max_tokens": 3, "echo": True, "stream": True}
        streamed = (await http.post("/v1/completions", json={**plain, "stream_options": options})).text
        assert chunks_of(streamed)[0]["choices"][0]["text"] == plain["prompt"], "text is never taken for usage"
        alone = {**CHAT, "stream": True, "stream_options": {"continuous_usage_stats": True}}
        assert "usage" not in (await http.post("/v1/chat/completions", json=alone)).text


async def test_whole_and_streamed_answers_have_the_same_fingerprint_which_numerics_change() -> None:
    prints: set[str] = set()
    for numerics in ("bfloat16", "float32"):
        async with rig(numerics=numerics) as r, r.http() as http:
            whole = (await http.post("/v1/chat/completions", json=CHAT)).json()["system_fingerprint"]
            streamed = (await http.post("/v1/chat/completions", json={**CHAT, "stream": True})).text
            assert {chunk["system_fingerprint"] for chunk in chunks_of(streamed)} == {whole}
            prints.add(whole)
    assert len(prints) == 2


async def test_the_settings_of_the_tokenizer() -> None:
    async with rig() as r, r.http() as http:
        told = (await http.get("/tokenizer_info")).json()
        assert set(told) == {"tokenizer_class", "chat_template"}
        assert "assistant" in told["chat_template"]


async def test_metrics_tell_the_shares_of_cached_tokens_and_accepted_drafts() -> None:
    async with rig() as r, r.http() as http:
        before = (await http.get("/v1/metrics")).json()
        assert (before["cache_hit_rate"], before["acceptance_rate"]) == (0.0, 0.0)
        r.scheduler().n_cached = 2
        r.scheduler().work = Work(n_drafted=8, n_accepted=6)
        await http.post("/v1/completions", json={"prompt": [1, 2, 3, 4, 5], "max_tokens": 3, "n": 2, "ignore_eos": True})
        after = (await http.get("/v1/metrics")).json()
        assert (after["cache_hit_rate"], after["acceptance_rate"]) == (0.4, 0.75)
