"""A gateway that starts reads its kept answers as bytes, and makes a request of one only when a client asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.gateway.requests.request import Request
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.journal_file import written

_N_ANSWERS = 40


async def ask(r: Rig, number: int) -> list[int]:
    """The tokens of an answer that is kept under a key."""
    body = {"tokens": [1, 2, number], "max_tokens": 8, "temperature": 0.0}
    async with r.http() as http:
        answer = await http.post("/v1/generate", json=body, headers={"Idempotency-Key": f"key-{number}"})
    return answer.json()["tokens"]


async def test_kept_answers_stay_encoded_until_a_client_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(journal_path=str(tmp_path / "journal-0")) as r:
        before = [await ask(r, number) for number in range(_N_ANSWERS)]
        await written(r.gateway.journal)
        await r.kill_gateway()
        made: list[str] = []
        init = Request.__init__

        def count(self: Request, *arguments: object, **fields: object) -> None:
            init(self, *arguments, **fields)  # pyright: ignore[reportArgumentType]
            made.append(self.spec.request)

        monkeypatch.setattr(Request, "__init__", count)
        await r.start_gateway(2)
        assert made == []
        assert await ask(r, 7) == before[7]
        assert len(made) == 1
