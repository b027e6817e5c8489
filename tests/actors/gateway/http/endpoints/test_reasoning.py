"""A model that thinks first, under the official clients: its reasoning stands beside its content, and can be turned off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.gateway.text.models.folder_text import FolderText
from tests.support.answers.client_libraries import anthropic, ollama, openai
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.thinking.thinking_server import THOUGHT, answer_after_a_kill, thinking_server
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

HELLO: list[Any] = [{"role": "user", "content": "hi"}]
ANSWER, BRIEF = "Yes, I am.", "No."


def says(prompt: str) -> str:
    """What the model writes after it has thought, or without it."""
    return ANSWER if prompt.endswith("<think>\n") else BRIEF


def thinking_http(folder: Path, text: FolderText) -> AbstractAsyncContextManager[Rig]:
    return thinking_server(folder, text, says, with_socket=True)


def address_of(r: Rig) -> str:
    return "http://{}:{}".format(*r.address)


async def test_openai(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with thinking_http(smollm2_text_folder, smollm2_text) as r:
        url = address_of(r) + "/v1"

        def talk() -> None:
            with openai.OpenAI(base_url=url, api_key="none", timeout=DEADLINE_S) as client:
                ask: Any = client.chat.completions.create
                whole = ask(model="m", messages=HELLO)
                message = whole.choices[0].message
                assert (message.reasoning_content, message.reasoning, message.content) == (THOUGHT, THOUGHT, ANSWER)
                assert 0 < whole.usage.completion_tokens_details.reasoning_tokens < whole.usage.completion_tokens
                deltas = [e.choices[0].delta for e in ask(model="m", messages=HELLO, stream=True)]
                assert "".join(d.content or "" for d in deltas) == ANSWER
                assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == THOUGHT
                off = {"chat_template_kwargs": {"enable_thinking": False}}
                assert ask(model="m", messages=HELLO, extra_body=off).choices[0].message.content == BRIEF
                assert ask(model="m", messages=HELLO, reasoning_effort="none").choices[0].message.content == BRIEF
                hidden = ask(model="m", messages=HELLO, extra_body={"include_reasoning": False}).choices[0].message
                assert (hidden.content, getattr(hidden, "reasoning_content", None)) == (ANSWER, None)
                joined = ask(model="m", messages=HELLO, extra_body={"separate_reasoning": False}).choices[0].message
                assert joined.content == f"{THOUGHT}\n</think>\n\n{ANSWER}"

        await asyncio.to_thread(talk)


async def test_anthropic(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with thinking_http(smollm2_text_folder, smollm2_text) as r:
        url = address_of(r)

        def talk() -> None:
            with anthropic.Anthropic(base_url=url, api_key="any", timeout=DEADLINE_S, max_retries=0) as client:
                asked: Any = {"model": "m", "max_tokens": 50, "messages": HELLO}
                thinks = {**asked, "thinking": {"type": "adaptive"}}
                whole: Any = client.messages.create(**thinks)
                assert [b.type for b in whole.content] == ["thinking", "text"]
                assert (whole.content[0].thinking, whole.content[1].text) == (THOUGHT, ANSWER)
                with client.messages.stream(**thinks) as stream:
                    final: Any = stream.get_final_message().content
                assert [(b.type, getattr(b, "thinking", None) or b.text) for b in final] == [
                    ("thinking", THOUGHT),
                    ("text", ANSWER),
                ]
                assert final[0].signature
                assert [b.text for b in client.messages.create(**asked).content if b.type == "text"] == [BRIEF]
                told = [*HELLO, {"role": "assistant", "content": whole.content}, *HELLO]
                assert client.messages.create(**{**asked, "messages": told}).content[0].type == "text"

        await asyncio.to_thread(talk)


async def test_ollama(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with thinking_http(smollm2_text_folder, smollm2_text) as r:
        url = address_of(r)

        def talk() -> None:
            with ollama.Client(url, timeout=DEADLINE_S) as client:
                assert client.show("m").capabilities == ["completion", "tools", "thinking"]
                whole = client.chat("m", HELLO, think=True)
                assert (whole.message.thinking, whole.message.content) == (THOUGHT, ANSWER)
                parts = list(client.chat("m", HELLO, stream=True))
                assert "".join(part.message.thinking or "" for part in parts) == THOUGHT
                assert client.chat("m", HELLO, think=False).message.content == BRIEF
                made = client.generate("m", "hi", think=True)
                assert (made.thinking, made.response) == (THOUGHT, ANSWER)

        await asyncio.to_thread(talk)


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"style": "<|im_end|>"}}, "chat_template_kwargs.style"),
        ({"chat_template_kwargs": {"style": ["x"]}}, "chat_template_kwargs.style"),
        ({"reasoning_effort": "great"}, "reasoning_effort"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ],
)
async def test_what_the_template_cannot_take_is_refused(
    fields: dict[str, Any], at_fault: str, smollm2_text_folder: Path, smollm2_text: FolderText
) -> None:
    async with (
        thinking_server(smollm2_text_folder, smollm2_text, says, with_socket=True) as r,
        httpx.AsyncClient(timeout=DEADLINE_S) as client,
    ):
        answer = await client.post(f"{address_of(r)}/v1/chat/completions", json={"messages": HELLO, **fields})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, at_fault)


async def test_an_answer_goes_on_with_the_last_message(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with (
        thinking_server(smollm2_text_folder, smollm2_text, says, with_socket=True) as r,
        httpx.AsyncClient(timeout=DEADLINE_S) as client,
    ):
        scheduler = r.scheduler()
        began = [*HELLO, {"role": "assistant", "content": "<think>I won"}]
        scheduler.output_of = lambda submit, n: smollm2_text.encode("der.</think>Yes.") + smollm2_text.eos_tokens
        body = {"messages": began, "continue_final_message": True, "chat_template_kwargs": {"other": 1.5}}
        answer = await client.post(f"{address_of(r)}/v1/chat/completions", json=body)
        message = answer.json()["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("der.", "Yes.")
        assert smollm2_text.decode(scheduler.submits[-1].tokens.tolist()) == "user: hi\nassistant: <think>I won"
        headless = {"messages": HELLO, "add_generation_prompt": False}
        assert (await client.post(f"{address_of(r)}/v1/chat/completions", json=headless)).status_code == 200
        assert smollm2_text.decode(scheduler.submits[-1].tokens.tolist()) == "user: hi\n"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {}),
        ("/v1/messages", {"max_tokens": 50, "thinking": {"type": "adaptive"}}),
        ("/api/chat", {"think": True}),
    ],
)
async def test_a_gateway_that_dies_in_the_reasoning_loses_nothing(
    path: str, fields: dict[str, Any], tmp_path: Path, smollm2_text_folder: Path, smollm2_text: FolderText
) -> None:
    body, journal = {"messages": HELLO, "stream": True, **fields}, str(tmp_path / "journal")
    async with thinking_server(smollm2_text_folder, smollm2_text, says, journal_path=journal) as r:
        whole = await answer_after_a_kill(r, path, body, 2)
    shown = [*_texts_in(whole, ("thinking", "reasoning_content"))], [*_texts_in(whole, ("text", "content"))]
    assert ("".join(shown[0]), "".join(shown[1])) == (THOUGHT, ANSWER)


def _texts_in(stream: bytes, names: tuple[str, ...]) -> Iterator[str]:
    """The texts of these fields in the deltas and messages of a stream."""
    for line in stream.decode().splitlines():
        found = json.loads(line.removeprefix("data: ")) if line.startswith(("{", "data: {")) else {}
        holder = found.get("delta") or found.get("message") or (found.get("choices") or [{}])[0].get("delta") or {}
        for name in names:
            if isinstance(text := holder.get(name), str):
                yield text
