"""A limit for the reasoning: what ranks are told of it, and what is refused."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from actors.gateway.text.models.folder_text import FolderText
from messages.generation.grammar import BoundedThinking
from messages.generation.sequences import Submit
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.thinking.thinking_server import thinking_server
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

HELLO: list[Any] = [{"role": "user", "content": "hi"}]


def server(folder: Path, text: FolderText, **settings: Any) -> AbstractAsyncContextManager[Rig]:
    return thinking_server(folder, text, lambda prompt: "Yes.", with_socket=True, **settings)


def url_of(r: Rig) -> str:
    return "http://{}:{}".format(*r.address)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"thinking_token_budget": 5}),
        ("/v1/messages", {"max_tokens": 50, "thinking": {"type": "enabled", "budget_tokens": 5}}),
    ],
)
async def test_the_reasoning_has_a_limit(
    path: str, fields: dict[str, Any], smollm2_text_folder: Path, smollm2_text: FolderText
) -> None:
    async with server(smollm2_text_folder, smollm2_text) as r, httpx.AsyncClient(timeout=DEADLINE_S) as client:
        end = smollm2_text.encode("</think>", add_special_tokens=False)
        body = {"messages": HELLO, **fields}
        assert (await client.post(f"{url_of(r)}{path}", json=body)).status_code == 200
        open_one = BoundedThinking(5, [], end, "</think>")
        assert limit_of(r.scheduler().submits[-1]) == open_one
        begin = smollm2_text.encode("<think>", add_special_tokens=False)
        if path == "/v1/chat/completions":
            off = {**body, "chat_template_kwargs": {"enable_thinking": False}}
            assert (await client.post(f"{url_of(r)}{path}", json=off)).status_code == 200
            assert limit_of(r.scheduler().submits[-1]) == msgspec.structs.replace(open_one, begin=begin)
            schema = {**body, "response_format": {"type": "json_object"}, "ignore_eos": True}
            assert (await client.post(f"{url_of(r)}{path}", json=schema)).status_code == 200
            assert (found := limit_of(r.scheduler().submits[-1])) is not None
            assert found.grammar.startswith('{"grammars"')


async def test_limits_that_cannot_hold_are_refused(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with server(smollm2_text_folder, smollm2_text) as r, httpx.AsyncClient(timeout=DEADLINE_S) as client:

        async def at_fault(path: str, **fields: Any) -> str:
            answer = await client.post(f"{url_of(r)}{path}", json={"messages": HELLO, **fields})
            assert answer.status_code == 400
            return answer.text

        chat = "/v1/chat/completions"
        assert "thinking_token_budget" in await at_fault(chat, thinking_token_budget=-1)
        assert "separate_reasoning" in await at_fault(chat, thinking_token_budget=3, separate_reasoning=False)
        assert "allowed_token_ids" in await at_fault(chat, thinking_token_budget=3, allowed_token_ids=[5])
        thinking = {"type": "enabled", "budget_tokens": "x"}
        long = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [f"v{n}" for n in range(7000)]}}}
        assert "fits beside thinking_token_budget" in await at_fault(chat, thinking_token_budget=3, response_format=long)
        assert "thinking.budget_tokens" in await at_fault("/v1/messages", max_tokens=5, thinking=thinking)


async def test_a_model_without_reasoning_has_nothing_to_limit(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with server(smollm2_text_folder, smollm2_text, reasoning="none") as r:
        async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
            body = {"messages": HELLO, "thinking_token_budget": 5}
            assert (await client.post(f"{url_of(r)}/v1/chat/completions", json=body)).status_code == 200
        assert r.scheduler().submits[-1].terms.grammar is None


def limit_of(submit: Submit) -> BoundedThinking | None:
    """The limit of the reasoning in a submitted sequence."""
    assert submit.terms.grammar is not None
    return BoundedThinking.read(submit.terms.grammar.text)
