"""The recipe of docs/overload.md: each level changes what the page says, and shows where the page says."""

from __future__ import annotations

import tomllib
from typing import Any

import httpx
import msgspec
import pytest

from actors.scheduler.settings import SchedulerSettings
from messages.generation.replica_load import DegradationLevel
from messages.lifecycle.tree import StatusReport, TreeState
from supervisor.children.child_record import ChildRecord
from supervisor.operator.status_table import status_text
from tests.support.documents.code_blocks import all_blocks
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.request_examples import load_of
from tests.support.supervisor.trees import group

TOLD = {
    0: None,
    1: "drafts=off",
    2: "drafts=off, n=1",
    3: "drafts=off, n=1, max_tokens=256",
    4: "drafts=off, n=1, max_tokens=256",
}


def recipe() -> dict[str, Any]:
    """The configuration of the page."""
    [block] = [one for one in all_blocks() if one.page == "docs/overload.md" and one.language == "toml"]
    return tomllib.loads(block.text)


async def at_level(r: Rig, level: int) -> None:
    """The replica reports a level, and the gateway has heard of it."""
    r.scheduler().mailbox.send("gateway/0", load_of(1 + level, level=level, waiting_tokens=100))
    await r.cluster.wait_until(lambda: r.manager.gate.outlook.level == level)


def status_of(r: Rig) -> str:
    """What `supervisor status` prints of the gateway."""
    child = ChildRecord(group("gateway/0").children[0]).status(0.0, with_metrics=False)
    gateway = msgspec.structs.replace(child, statistics=r.gateway.statistics())
    return status_text(StatusReport(TreeState.SERVING, 1.0, "m", "u", [gateway]), 240)


async def ask(http: httpx.AsyncClient, priority: int = 0) -> httpx.Response:
    body = {"prompt": [1, 2, 3], "max_tokens": 1000, "temperature": 1, "seed": 1, "n": 4, "priority": priority}
    return await http.post("/v1/completions", json=body)


@pytest.mark.parametrize("level", [int(one) for one in DegradationLevel])
async def test_a_level_changes_what_the_page_says_and_shows_where_it_says(level: int) -> None:
    settings = recipe()
    assert msgspec.convert(settings["scheduler"], SchedulerSettings).degraded_wait_s == 5.0
    async with rig(**settings["gateway"]) as r, r.http() as http:
        await at_level(r, level)
        answer = await ask(http)
        assert answer.headers.get("X-Degraded") == TOLD[level]
        choices, used = answer.json()["choices"], answer.json()["usage"]["completion_tokens"]
        assert (len(choices), used) == {0: (4, 4000), 1: (4, 4000), 2: (1, 1000)}.get(level, (1, 256))
        metrics = (await http.get("/metrics")).text
        [line] = [line for line in metrics.splitlines() if line.startswith("tardigrade_degradation_level{")]
        assert float(line.split()[-1]) == level
        shown = (await http.get("/v1/metrics")).json()
        assert f'"degradation_level":{level}' in msgspec.json.encode(shown).decode().replace(".0", "") or not level
        assert (f"degradation: level {level} (no drafts" in status_of(r)) == (level > 0)
        shed = await ask(http, priority=1)
        assert shed.status_code == (429 if level == 4 else 200)
        if level == 4:
            error = shed.json()["error"]
            assert error["code"] == "shed"
            assert "level 4 of degradation" in error["message"]
            assert "expected a priority of at most 0, got 1" in error["message"]
            assert error["message"].endswith(f"come back in {shed.headers['Retry-After']}s")
