"""What a gateway does with a request first: its scheduler waits for the message, and nobody in this turn for the rest."""

from __future__ import annotations

from typing import Any

import pytest

from messages.wire.message import NO_TRACE, Message
from tests.support.gateway.gateway_rig import rig


async def test_a_request_is_submitted_before_its_record_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r, r.http() as http:
        order, send, admission = list[str](), r.gateway.send, r.gateway.journal.admission

        def note_send(name: str, message: Message, trace: bytes = NO_TRACE) -> None:
            order.append(type(message).__name__)
            send(name, message, trace)

        def note_admission(*arguments: Any) -> None:
            order.append("admission")
            admission(*arguments)

        monkeypatch.setattr(r.gateway, "send", note_send)
        monkeypatch.setattr(r.gateway.journal, "admission", note_admission)
        answer = await http.post("/v1/generate", json={"tokens": [1, 2], "max_tokens": 3, "temperature": 0})
        assert answer.status_code == 200
        assert order[:2] == ["Submit", "admission"]
