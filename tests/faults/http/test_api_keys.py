"""A real server with API keys: streams of two tenants go on through kills, and nobody reads those of the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from messages.access.api_key import key_id_of
from tests.support.key_commands import keys
from tests.support.real_server import RealServer, real_server
from tests.support.waiting import DEADLINE_S

FLAGS = ("--model", "hash-chain", "--gateways", "2", "--api-keys", "--set", "worker.hash_chain_step_s=0.005")
VICTIMS = ("gateway/0", "gateway/1", "scheduler/0", "worker/0.0")
N_TOKENS = 300


async def read(http: httpx.AsyncClient, key: str, name: str, has_begun: asyncio.Semaphore) -> list[str]:
    """The data lines of one stream, over one connection."""
    body = {"prompt": "hello", "max_tokens": N_TOKENS, "temperature": 0, "stream": True}
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": name}
    lines: list[str] = []
    async with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                lines.append(line)
                if len(lines) == 20:
                    has_begun.release()
    return lines


async def drill(server: RealServer, state: Path) -> None:
    held = {tenant: keys(state, "add", "--tenant", tenant) for tenant in ("mine", "yours")}
    has_begun = asyncio.Semaphore(0)
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S) as http, asyncio.timeout(2 * DEADLINE_S):
        names = [(tenant, f"{tenant}-{number}") for tenant in held for number in range(4)]
        work = [asyncio.ensure_future(read(http, held[tenant], name, has_begun)) for tenant, name in names]
        for _ in work:
            await has_begun.acquire()
        for victim in VICTIMS:
            await asyncio.to_thread(server.kill, victim)
        whole = await asyncio.gather(*work)
        assert {len(lines) for lines in whole} == {N_TOKENS + 2}, "each token, the chunk of the end, and [DONE]"
        for tenant, name in names:
            for asker, status in ((tenant, 200), ("yours" if tenant == "mine" else "mine", 404)):
                headers = {"Authorization": f"Bearer {held[asker]}"}
                assert (await http.get(f"/v1/streams/{name}", headers=headers)).status_code == status
        keys(state, "revoke", key_id_of(held["mine"]))
        while (await http.get("/v1/models", headers={"Authorization": f"Bearer {held['mine']}"})).status_code != 401:
            await asyncio.sleep(0.05)


def test_streams_of_tenants_go_on_and_stay_apart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with real_server(*FLAGS, "--state-dir", str(state)) as server:
        asyncio.run(drill(server, state))
