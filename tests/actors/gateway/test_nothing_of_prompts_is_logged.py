"""What clients send stays out of logs and metrics, whatever becomes of their requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.gateway.gateway_rig import rig

pytestmark = pytest.mark.slow

CANARY = "xq7canary"
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": CANARY, "max_tokens": 2}),
    ("/v1/completions", {"prompt": CANARY, "max_tokens": 2, "stream": True}),
    ("/v1/completions", {"prompt": CANARY, "max_tokens": -1}),
    ("/v1/completions", {"prompt": CANARY * 9000, "max_tokens": 2}),
    ("/v1/completions", {"prompt": {"text": CANARY}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": CANARY}], "max_tokens": 2}),
    ("/v1/chat/completions", {"messages": [{"role": CANARY, "content": CANARY}]}),
    ("/v1/generate", {"prompt": CANARY, "stop": [CANARY], "max_tokens": 2}),
    ("/v1/generate", {CANARY: CANARY}),
    ("/tokenize", {"prompt": CANARY}),
]


@pytest.mark.parametrize("next_life", [False, True], ids=["one life", "a life that reads the journal"])
async def test_logs_and_metrics_hold_nothing_of_a_prompt(tmp_path: Path, next_life: bool) -> None:
    with capture_logs() as logs:
        async with rig(journal_path=str(tmp_path / "journal-0")) as r:
            async with r.http() as http:
                for path, body in BODIES:
                    reply = await http.post(path, json=body)
                    assert reply.status_code in (200, 400)
                await http.post("/v1/completions", content=CANARY.encode())
            if next_life:
                await r.kill_gateway()
                await r.start_gateway(2)
            async with r.http() as http:
                metrics = (await http.get("/metrics")).text + (await http.get("/v1/metrics")).text
    assert CANARY not in metrics
    assert not [entry for entry in logs if CANARY in repr(entry)]
