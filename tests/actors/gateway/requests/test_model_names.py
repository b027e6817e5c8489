"""A name that no served model has is refused with the one that there is, and with the way to another name."""

from __future__ import annotations

import pytest

from tests.support.gateway.gateway_rig import rig

ASKED = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ("/v1/completions", {"prompt": "x"}),
    ("/v1/responses", {"input": "x"}),
    ("/v1/generate", {"prompt": "x"}),
)


@pytest.mark.parametrize(("path", "body"), ASKED, ids=[path for path, _ in ASKED])
async def test_a_client_that_insists_on_a_name_is_told_how_the_model_gets_it(path: str, body: dict[str, object]) -> None:
    async with rig() as r, r.http() as http:
        answer = await http.post(path, json={**body, "model": "gpt-4o"})
    said = 'model: expected "hash-chain", got "gpt-4o"; a start with --model-name gives it another name'
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, said)
