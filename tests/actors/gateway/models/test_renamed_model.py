"""An answer calls the model as its beginning did, also where the next process of the gateway has another name for it.

`supervisor restart` and a new start may change `model_name`. Each event of a stream has it, and a connection goes on at a byte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.gateway.gateway_rig import Rig, rig

CHAT: dict[str, Any] = {"model": "before", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0}
APIS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"model": "before", "prompt": [1, 2], "max_tokens": 4}),
    ("/v1/responses", {"model": "before", "input": "hi", "max_output_tokens": 4, "temperature": 0}),
    ("/v1/messages", CHAT),
]
STREAMED, WHOLE = {"Idempotency-Key": "streamed"}, {"Idempotency-Key": "whole"}


async def answers(r: Rig, path: str, body: dict[str, Any]) -> tuple[str, str]:
    """A stream and a whole answer, each of which is one generation however often it is asked for."""
    async with r.http() as http:
        streamed = await http.post(path, json={**body, "stream": True}, headers=STREAMED)
        return streamed.text, (await http.post(path, json=body, headers=WHOLE)).text


@pytest.mark.parametrize(("path", "body"), APIS)
async def test_an_answer_keeps_the_name_with_which_it_began(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    async with rig(journal_path=str(tmp_path / "journal"), model_name="before") as r:
        first = await answers(r, path, body)
        assert all('"model":"before"' in text for text in first)
        await r.kill_gateway()
        r.settings = msgspec.structs.replace(r.settings, model_name="a longer name")
        await r.start_gateway(2)
        assert await answers(r, path, body) == first
        async with r.http() as http:
            renamed = {**body, "model": "a longer name", "stream": True}
            new = await http.post(path, json=renamed, headers={"Idempotency-Key": "new"})
        assert '"model":"a longer name"' in new.text


async def test_a_stored_response_keeps_the_name(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path / "journal"), model_name="before") as r:
        async with r.http() as http:
            made = (await http.post("/v1/responses", json={"input": "hi", "max_output_tokens": 4})).json()
        await r.kill_gateway()
        r.settings = msgspec.structs.replace(r.settings, model_name="a longer name")
        await r.start_gateway(2)
        async with r.http() as http:
            assert (await http.get(f"/v1/responses/{made['id']}")).json() == made
