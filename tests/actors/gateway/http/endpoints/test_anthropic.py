"""Anthropic's endpoints under the official `anthropic` client, unchanged, over a real socket; and what they refuse."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.gateway.text.models.folder_text import FolderText
from tests.support.answers.client_libraries import anthropic
from tests.support.gateway.fake_scheduler import ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S, until

HELLO: list[Any] = [{"role": "user", "content": "hi"}]
ASKED: dict[str, Any] = {"model": "hash-chain", "max_tokens": 6, "messages": HELLO, "extra_body": {"temperature": 0}}
PROMPT = text_ids("user: hi\nassistant: ")
ANSWER = oracle(PROMPT, 6)
EVENTS = ["message_start", "content_block_start", *["content_block_delta"] * 6, "content_block_stop", "message_delta"]


def address_of(r: Rig) -> str:
    host, port = r.address
    return f"http://{host}:{port}"


async def test_sync_client() -> None:
    async with rig(with_socket=True) as r:
        url = address_of(r)

        def talk() -> None:
            with anthropic.Anthropic(base_url=url, api_key="any", timeout=DEADLINE_S, max_retries=0) as client:
                whole = client.messages.create(**ASKED)
                assert [block.text for block in whole.content if block.type == "text"] == [ids_text(ANSWER)]
                assert (whole.stop_reason, whole.stop_sequence) == ("max_tokens", None)
                assert (whole.usage.input_tokens, whole.usage.output_tokens) == (len(PROMPT), 6)
                kinds = [event.type for event in client.messages.create(**ASKED, stream=True)]
                assert kinds == [*EVENTS, "message_stop"]
                stopped = client.messages.create(**ASKED, stop_sequences=["never", str(ANSWER[2])])
                assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", str(ANSWER[2]))
                assert client.messages.count_tokens(model="hash-chain", messages=HELLO).input_tokens == len(PROMPT)
                whole: Any = {"max_tokens": 5, "temperature": 0, "stop_sequences": ["x"], "stream": False, "top_k": 3}
                counted = client.messages.count_tokens(model="hash-chain", messages=HELLO, extra_body=whole)
                assert counted.input_tokens == len(PROMPT), "as proxies send it, which count what they would have sent"
                with pytest.raises(anthropic.NotFoundError, match="claude-x"):
                    client.messages.create(**{**ASKED, "model": "claude-x"})

        await asyncio.to_thread(talk)


async def test_async_client_with_a_system_prompt_and_blocks() -> None:
    async with rig(with_socket=True) as r:
        blocks: list[Any] = [
            {"type": "text", "text": "be ", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "kind"},
        ]
        asked: dict[str, Any] = {**ASKED, "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
        expected = ids_text(oracle(text_ids("system: be kind\nuser: hi\nassistant: "), 6))
        async with anthropic.AsyncAnthropic(base_url=address_of(r), api_key="any", timeout=DEADLINE_S, max_retries=0) as client:
            async with client.messages.stream(**asked, system=blocks, metadata={"user_id": "me"}) as stream:
                text = "".join([part async for part in stream.text_stream])
                final = await stream.get_final_message()
            assert text == expected
            assert final.usage.output_tokens == 6
            assert (await client.beta.messages.count_tokens(model="hash-chain", messages=HELLO)).input_tokens == len(PROMPT)


REFUSED: list[tuple[dict[str, Any], int, str, str]] = [
    ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens: expected"),
    ({"model": "other"}, 404, "not_found_error", "model: expected"),
    ({"tools": [{"type": "bash_20250124", "name": "x"}]}, 400, "invalid_request_error", "tools[0].type: expected"),
    (
        {"tools": [{"name": "x"}], "tool_choice": {"type": "tool", "name": "y"}},
        400,
        "invalid_request_error",
        "tool_choice.name",
    ),
    ({"thinking": {"type": "always"}}, 400, "invalid_request_error", "thinking.type: expected"),
    ({"stop_sequences": [""]}, 400, "invalid_request_error", "stop_sequences: expected strings of 1 to"),
    ({"messages": []}, 400, "invalid_request_error", "messages: expected"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 400, "invalid_request_error", "messages[0].role: expected"),
    ({"messages": [*HELLO, {"role": "assistant", "content": " "}]}, 400, "invalid_request_error", "the last message"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error", "messages[0].content[0]"),
    ({"system": [{"type": "image"}]}, 400, "invalid_request_error", "system[0]: expected"),
    ({"temperature": 1.5}, 400, "invalid_request_error", "temperature: expected a number <= 1"),
    ({"compaction": {"type": "auto"}}, 400, "invalid_request_error", "compaction: expected null"),
]


async def test_errors_have_anthropics_form_and_name_the_field() -> None:
    async with rig() as r, r.http() as http:
        for changed, status, kind, words in REFUSED:
            answer = await http.post("/v1/messages", json={"max_tokens": 2, "messages": HELLO, **changed})
            error = answer.json()
            assert (answer.status_code, error["type"], error["error"]["type"]) == (status, "error", kind), error
            assert words in error["error"]["message"]
            assert "details" not in error["error"]
        counted = {"messages": HELLO, "compaction": {"type": "auto"}}  # without effect on a count
        assert (await http.post("/v1/messages/count_tokens", json=counted)).status_code == 200
        assert (await http.get("/v1/messages/batches")).json()["error"]["type"] == "not_found_error"


async def test_a_thread_of_the_client_goes_on_with_the_whole_conversation() -> None:
    async with rig(with_socket=True) as r, r.http() as http:
        thread = {"type": "continue", "previous_message_id": "msg_a"}
        refused = await http.post("/v1/messages", json={"max_tokens": 2, "messages": HELLO, "thread": thread})
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        assert (refused.status_code, refused.json()["error"]["details"]) == (400, details)
        url = address_of(r)

        def talk() -> None:
            with anthropic.Anthropic(base_url=url, api_key="any", timeout=DEADLINE_S, max_retries=0) as client:
                terms: Any = {**ASKED, "extra_body": {"temperature": 0}, "unsupported_request_behavior": "continue_unthreaded"}
                talked = client.beta.messages.thread(**terms)
                talked.send()
                talked.send({"role": "user", "content": "and you?"})

        await asyncio.to_thread(talk)
        sent = r.scheduler().submits[-1].tokens.tolist()
        assert sent == text_ids(f"user: hi\nassistant: {ids_text(ANSWER)}\nuser: and you?\nassistant: ")


async def test_a_silent_stream_gets_pings_and_a_late_failure_is_an_error_event() -> None:
    async with rig(with_scheduler=False, with_socket=True, sse_ping_s=0.01) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        asked = {"max_tokens": 6, "messages": HELLO, "stream": True}
        async with (
            httpx.AsyncClient(base_url=address_of(r), timeout=DEADLINE_S) as http,
            http.stream("POST", "/v1/messages", json=asked) as answer,
        ):
            lines = answer.aiter_lines()
            await until(lambda: bool(scheduler.running))
            scheduler.step(1)
            async for line in lines:
                if line == "event: ping":
                    break
            scheduler.fail(next(iter(scheduler.running)))
            rest = [line async for line in lines]
        assert "event: error" in rest
        assert "event: message_stop" not in rest


async def test_the_next_gateway_writes_the_same_bytes(tmp_path: Path) -> None:
    asked = {"max_tokens": 6, "messages": HELLO, "stream": True, "temperature": 0, "stop_sequences": [str(ANSWER[3])]}
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal")) as r:
        await r.add_scheduler()

        async def ask() -> bytes:
            async with r.http() as http:
                return (await http.post("/v1/messages", json=asked, headers={"Idempotency-Key": "one"})).content

        first = await ask()
        await r.kill_gateway()
        await r.start_gateway(2)
        assert await ask() == first
    assert b'"stop_reason":"stop_sequence"' in first


async def test_later_system_messages_are_the_users_and_turns_of_one_side_are_joined() -> None:
    late = [*HELLO, {"role": "system", "content": [{"type": "text", "text": "be kind"}]}, {"role": "user", "content": "you"}]
    first = [{"role": "system", "content": "and brief"}, *late]
    async with rig() as r, r.http() as http:
        for messages, told in ((late, "system: sir\n"), (first, "system: sir\n\nand brief\n")):
            asked = {"max_tokens": 2, "system": "sir", "messages": messages, "context_management": {"edits": [{"type": "x"}]}}
            answer = await http.post("/v1/messages", json=asked)
            assert answer.headers["x-ignored-fields"] == "context_management"
            assert r.scheduler().submits[-1].tokens.tolist() == text_ids(f"{told}user: hi\n\nbe kind\n\nyou\nassistant: ")


async def test_a_deferred_tool_is_told_once_a_result_refers_to_it(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    tools = [{"name": "search"}, {"name": "wanted", "defer_loading": True}, {"name": "never", "defer_loading": True}]
    called = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
    found = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "wanted"}]}
    after = [*HELLO, {"role": "assistant", "content": [called]}, {"role": "user", "content": [found]}]
    async with rig(model_folder=str(smollm2_text_folder), model_name="m") as r, r.http() as http:
        prompts: list[str] = []
        for messages in (HELLO, after):
            answer = await http.post("/v1/messages", json={"max_tokens": 2, "messages": messages, "tools": tools})
            assert answer.status_code == 200, answer.text
            prompts.append(smollm2_text.decode(r.scheduler().submits[-1].tokens.tolist()))
    assert ['"search"' in prompts[0], '"wanted"' in prompts[0], '"wanted"' in prompts[1]] == [True, False, True]
    assert "The tool wanted can be called now." in prompts[1]
    assert "never" not in prompts[1]
