"""OpenAI's Responses API under the official client, unchanged, over a real socket; what is kept, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.answers.client_libraries import openai
from tests.support.gateway.fake_scheduler import FakeScheduler, ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.waiting import DEADLINE_S, until

ASKED: dict[str, Any] = {"model": "hash-chain", "input": "hi", "temperature": 0, "max_output_tokens": 6}
PROMPT = text_ids("user: hi\nassistant: ")
ANSWER = oracle(PROMPT, 6)
TEXT = ids_text(ANSWER)
OPENINGS = ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
DONE = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]


def client_of(r: Rig) -> openai.AsyncOpenAI:
    host, port = r.address
    return openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="any", timeout=DEADLINE_S, max_retries=0)


async def test_whole_and_streamed_responses_and_their_conversation() -> None:
    async with rig(with_socket=True) as r, client_of(r) as client:
        whole = await client.responses.create(**ASKED, instructions="be kind", metadata={"a": "b"})
        expected = ids_text(oracle(text_ids("system: be kind\nuser: hi\nassistant: "), 6))
        assert (whole.output_text, whole.status) == (expected, "incomplete")
        assert whole.incomplete_details is not None
        assert whole.incomplete_details.reason == "max_output_tokens"
        assert (whole.instructions, whole.metadata, whole.store) == ("be kind", {"a": "b"}, True)
        assert whole.usage is not None
        assert whole.usage.total_tokens == whole.usage.input_tokens + 6
        assert (await client.responses.retrieve(whole.id)).model_dump() == whole.model_dump()
        events = [event async for event in await client.responses.create(**ASKED, stream=True)]
        assert [event.type for event in events] == [
            *OPENINGS, *["response.output_text.delta"] * 6, *DONE, "response.incomplete",
        ]  # fmt: skip
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TEXT
        last: Any = events[-1]
        assert last.response.output_text == TEXT
        again = [one async for one in await client.responses.retrieve(last.response.id, stream=True, starting_after=numbers[6])]
        assert [one.model_dump() for one in again] == [one.model_dump() for one in events[7:]]


async def test_a_response_goes_on_with_an_earlier_one() -> None:
    async with rig(with_socket=True) as r, client_of(r) as client:
        first = await client.responses.create(**ASKED, instructions="not told again")
        said = first.output_text
        second = await client.responses.create(**{**ASKED, "input": "and?"}, previous_response_id=first.id)
        prompt = f"user: hi\nassistant: {said}\nuser: and?\nassistant: "
        assert second.output_text == ids_text(oracle(text_ids(prompt), 6))
        assert second.previous_response_id == first.id
        items = await client.responses.input_items.list(second.id, order="asc")
        assert [getattr(item, "role", "") for item in items.data] == ["user", "assistant", "user"]
        assert len([item async for item in client.responses.input_items.list(second.id, limit=1)]) == 3
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(first.id)
        third = await client.responses.create(**{**ASKED, "input": "so"}, previous_response_id=second.id)
        assert third.previous_response_id == second.id, "a conversation does not need the responses before it"
        with pytest.raises(openai.NotFoundError, match="previous_response_id"):
            await client.responses.create(**ASKED, previous_response_id=first.id)
        hidden = await client.responses.create(**ASKED, store=False)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(hidden.id)


async def test_a_response_in_the_background_is_polled_and_cancelled() -> None:
    async with rig(with_scheduler=False, with_socket=True, orphan_s=0.0) as r, client_of(r) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        begun = await client.responses.create(**ASKED, background=True)
        assert (begun.status, begun.background) == ("in_progress", True)
        await until(lambda: bool(scheduler.running))
        r.manager._sweep()
        assert (await client.responses.retrieve(begun.id)).status == "in_progress", "it needs no client"
        scheduler.step(6)
        async for _ in await client.responses.retrieve(begun.id, stream=True):
            pass
        assert (await client.responses.retrieve(begun.id)).output_text == TEXT
        other = await client.responses.create(**ASKED, background=True)
        await until(lambda: bool(scheduler.running))
        assert (await client.responses.cancel(other.id)).status == "cancelled"
        assert not scheduler.running
        assert (await client.responses.cancel(begun.id)).status == "incomplete", "it was over"


async def test_text_formats_items_and_log_probabilities() -> None:
    async with rig() as r, r.http() as http:
        items = [
            {"role": "developer", "content": "be brief"},
            {"type": "reasoning", "summary": []},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "h"}, {"type": "input_text", "text": "i"}],
            },
        ]
        asked = {**ASKED, "input": items, "instructions": "be kind", "include": ["message.output_text.logprobs"]}
        answer = (await http.post("/v1/responses", json=asked)).json()
        expected = oracle(text_ids("system: be kind\n\nbe brief\nuser: hi\nassistant: "), 6)
        part = answer["output"][0]["content"][0]
        assert part["text"] == ids_text(expected)
        assert len(part["logprobs"]) == 6
        streamed = (await http.post("/v1/responses", json={**asked, "stream": True})).text
        deltas = [
            json.loads(line[6:])
            for line in streamed.split("\n")
            if line.startswith('data: {"type":"response.output_text.delta')
        ]
        assert [entry for delta in deltas for entry in delta["logprobs"]] == part["logprobs"]


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"input": []}, 400, "input: expected"),
    ({"input": [{"type": "function_call_output"}]}, 400, "input[0]: expected"),
    ({"input": [{"role": "x", "content": "a"}]}, 400, "input[0].role: expected"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, 400, "input[0].content[0]: expected"),
    ({"model": "other"}, 404, "model: expected"),
    ({"tools": [{"type": "function"}]}, 400, "tools[0].name: expected"),
    ({"tool_choice": "required"}, 400, "tool_choice: expected"),
    ({"reasoning": {"effort": "great"}}, 400, "reasoning.effort: "),
    ({"input": [{"type": "function_call", "name": "f"}]}, 400, "input[0]: expected"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": 1}]}, 400, "input[0].output: expected"),
    ({"conversation": "c"}, 400, "conversation: expected"),
    ({"background": True, "store": False}, 400, "background: expected"),
    ({"text": {"format": {"type": "x"}}}, 400, "text.format.type: expected"),
    ({"text": {"format": {"type": "json_schema"}}}, 400, "text.format.schema: expected"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, 400, "text.format: expected"),
    ({"max_output_tokens": 0}, 400, "max_output_tokens: expected"),
    ({"max_output_tokens": 10**9}, 400, "max_output_tokens: expected"),
    ({"previous_response_id": "resp_x"}, 404, "previous_response_id: expected"),
    ({"truncation": "auto"}, 400, "truncation: expected"),
    ({"stream_options": {}}, 400, "stream_options: expected"),
]


async def test_refusals_name_the_field() -> None:
    async with rig() as r, r.http() as http:
        for changed, status, words in REFUSED:
            answer = await http.post("/v1/responses", json={**ASKED, **changed})
            assert answer.status_code == status, answer.text
            assert words in answer.json()["error"]["message"]
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
            assert (await http.request(method, f"/v1/responses/resp_x{path}")).status_code == 404


async def test_responses_outlive_their_gateway(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path / "journal")) as r:
        async with r.http() as http:
            first = (await http.post("/v1/responses", json=ASKED)).json()
            streamed = await http.post("/v1/responses", json={**ASKED, "stream": True}, headers={"Idempotency-Key": "50% mine"})
        await r.kill_gateway()
        await r.start_gateway(2)
        async with r.http() as http:
            assert (await http.get(f"/v1/responses/{first['id']}")).json() == first
            again = await http.post("/v1/responses", json={**ASKED, "stream": True}, headers={"Idempotency-Key": "50% mine"})
            assert again.content == streamed.content
            goes_on = {**ASKED, "input": "and?", "previous_response_id": first["id"]}
            prompt = f"user: hi\nassistant: {TEXT}\nuser: and?\nassistant: "
            answer = (await http.post("/v1/responses", json=goes_on)).json()
            assert answer["output"][0]["content"][0]["text"] == ids_text(oracle(text_ids(prompt), 6))


async def test_any_gateway_shows_goes_on_with_and_deletes_a_response() -> None:
    async with two_gateways() as (r, second, scheduler), r.http() as http, Rig.http(second) as other:

        async def ask(through: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
            answer = asyncio.ensure_future(through.post("/v1/responses", json={**ASKED, **fields}))
            await _compute(scheduler)
            return (await answer).json()

        made = await ask(http)
        path = f"/v1/responses/{made['id']}"
        assert (await other.get(path)).json() == made
        assert (await other.post(path + "/cancel")).json() == made
        assert len((await other.get(path + "/input_items")).json()["data"]) == 1
        later = await ask(other, input="and?", previous_response_id=made["id"])
        assert later["previous_response_id"] == made["id"]
        assert (await other.delete(path)).json()["deleted"]
        assert (await http.get(path)).status_code == (await other.get(path)).status_code == 404
        refused = await other.post("/v1/responses", json={**ASKED, "previous_response_id": made["id"]})
        assert refused.status_code == 404


async def _compute(scheduler: FakeScheduler) -> None:
    await until(lambda: bool(scheduler.running))
    scheduler.step(6)
