"""What clients of other servers meet: schemas and models in Anthropic's form, counted inputs, images, texts without bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.answers.client_libraries import anthropic, openai
from tests.support.gateway.gateway_rig import rig
from tests.support.waiting import DEADLINE_S

USER: list[Any] = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
OF_ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


async def test_anthropic_clients_see_models_as_their_api_shows_them() -> None:
    async with rig(with_socket=True) as r, r.http() as http:
        host, port = r.address

        def talk() -> None:
            with anthropic.Anthropic(base_url=f"http://{host}:{port}", api_key="any", timeout=DEADLINE_S) as client:
                (one,) = client.models.list()
                assert (one.id, one.type, one.display_name) == ("hash-chain", "model", "hash-chain")
                assert (one.max_input_tokens, one.max_tokens) == (8192, 8192)
                assert client.models.retrieve("hash-chain").created_at.year >= 2025

        await asyncio.to_thread(talk)
        assert (await http.get("/v1/models")).json()["object"] == "list"


@pytest.mark.parametrize("fields", [{"output_config": {"format": FORMAT, "effort": "low"}}, {"output_format": FORMAT}])
async def test_a_schema_in_anthropics_form_is_a_grammar(fields: dict[str, Any]) -> None:
    """The model of this test has no tokenizer, so it refuses grammars, and says so of the field that asks for one."""
    async with rig() as r, r.http() as http:
        body = {"messages": USER, "max_tokens": 4}
        answer = await http.post("/v1/messages", json={**body, **fields})
        assert answer.status_code == 400
        field = "output_format" if "output_format" in fields else "output_config.format"
        assert answer.json()["error"]["message"].startswith(f"{field}: expected none for a model without a tokenizer")
        wrong = await http.post("/v1/messages", json={**body, "output_config": {"format": {"type": "text"}}})
        assert "output_config.format: expected" in wrong.json()["error"]["message"]
        assert (await http.post("/v1/messages", json={**body, "output_config": {"effort": "max"}})).status_code == 200


async def test_the_tokens_of_an_input_are_counted() -> None:
    async with rig(with_socket=True) as r:
        host, port = r.address
        async with openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="none") as client:
            counted = await client.responses.input_tokens.count(model="hash-chain", input="hi", instructions="be kind")
            answer = await client.responses.create(model="hash-chain", input="hi", instructions="be kind", max_output_tokens=2)
        assert counted.object == "response.input_tokens"
        assert answer.usage is not None
        assert counted.input_tokens == answer.usage.input_tokens


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": [OF_ANTHROPIC]}], "max_tokens": 2}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
    ],
)
async def test_an_image_is_refused_in_words_that_say_why(path: str, body: dict[str, Any]) -> None:
    async with rig() as r, r.http() as http:
        answer = await http.post(path, json=body)
        assert answer.status_code == 400
        assert "expected a text, because this model reads text only, got " in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/v1/completions", {"truncate_prompt_tokens": 5, "max_tokens": 1}),
        ("/v1/generate", {"truncate_prompt_tokens": -1}),
    ],
)
async def test_a_text_that_is_far_too_long_is_not_encoded(path: str, body: dict[str, Any]) -> None:
    async with rig(max_length=512) as r, r.http() as http:
        answer = await http.post(path, json={**body, "prompt": "a" * ((1 << 20) + 1)})
        assert answer.status_code == 400
        assert "at most 1048576 characters" in answer.json()["error"]["message"]
        assert (await http.post("/tokenize", json={"prompt": "a" * 10_000})).json()["count"] == 10_000
