"""What may have changed when the next gateway starts: clock, model, number of gateways. No answer changes with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs

from actors.gateway.gateway_actor import GatewayActor
from actors.gateway.journal import clock, restore
from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.servers import GatewayServers
from tests.support.gateway.fake_scheduler import FakeScheduler, oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.journal_file import written
from tests.support.waiting import DEADLINE_S, until

RUNNING = {"tokens": [1, 2], "max_tokens": 8, "temperature": 0, "request_id": "running"}
DONE = {"tokens": [3], "max_tokens": 2, "temperature": 0, "request_id": "done"}


@asynccontextmanager
async def next_incarnation(
    folder: Path, change: Callable[[Rig], None], **settings: Any
) -> AsyncIterator[tuple[Rig, FakeScheduler]]:
    """A gateway with one running request of three tokens and one finished one is killed; `change` happens; the next starts."""
    async with rig(with_scheduler=False, journal_path=str(folder / "journal-0"), **settings) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            asked = [asyncio.ensure_future(http.post("/v1/generate", json=body)) for body in (RUNNING, DONE)]
            await until(lambda: len(scheduler.running) == 2)
            scheduler.step(3)
            await until(lambda: asked[1].done() and scheduler.acked == scheduler.sent)
            await written(r.gateway.journal)
            await r.kill_gateway()
            asked[0].cancel()
        scheduler.running.clear()
        change(r)
        await r.start_gateway(2)
        yield r, scheduler


async def both_answers(r: Rig, scheduler: FakeScheduler) -> tuple[httpx.Response, httpx.Response]:
    async with r.http() as http:
        running = asyncio.ensure_future(http.post("/v1/generate", json=RUNNING))
        done = await http.post("/v1/generate", json=DONE)
        await until(lambda: bool(scheduler.running) or running.done())
        scheduler.step(40)
        return await asyncio.wait_for(running, DEADLINE_S), done


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0, 1e9])
async def test_a_jump_of_the_wall_clock_ends_and_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    wall_s = GatewayActor.wall_s

    def jump(_: Rig) -> None:
        monkeypatch.setattr(GatewayActor, "wall_s", lambda self: wall_s(self) + jump_s)

    async with next_incarnation(tmp_path, jump) as (r, scheduler):
        r.manager._sweep()
        running, done = await both_answers(r, scheduler)
        assert running.json()["tokens"] == oracle([1, 2], 8)
        assert done.json()["tokens"] == oracle([3], 2)


@pytest.mark.parametrize("is_rebooted", [False, True])
async def test_ages_go_on_from_one_incarnation_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_rebooted: bool
) -> None:
    """An hour passes between the lives. After a reboot nobody knows how long it was, so it does not count."""
    since_boot_s = clock.since_boot_s

    def pass_an_hour(_: Rig) -> None:
        if is_rebooted:
            monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
            monkeypatch.setattr(clock, "since_boot_s", lambda: since_boot_s() % 1.0)
        else:
            monkeypatch.setattr(clock, "since_boot_s", lambda: since_boot_s() + 3601.0)

    async with next_incarnation(tmp_path, pass_an_hour) as (r, scheduler):
        if not is_rebooted:
            await until(lambda: not r.manager.gate.n_active)
        r.manager._sweep()
        assert (r.manager.find("done") is not None) is is_rebooted
        if is_rebooted:
            running, _ = await both_answers(r, scheduler)
            assert running.json()["tokens"] == oracle([1, 2], 8)
        else:
            async with r.http() as http:
                answer = await http.post("/v1/generate", json=RUNNING)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline")


async def test_no_request_goes_on_with_the_weights_of_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModelIdentity(b"other weights", b"hash-chain")

    def serve_another(_: Rig) -> None:
        monkeypatch.setattr("actors.gateway.models.model_identity.known_identity", lambda folder: other)

    async with next_incarnation(tmp_path, serve_another) as (r, scheduler):
        running, done = await both_answers(r, scheduler)
        assert not scheduler.running
        assert (running.status_code, running.json()["error"]["code"]) == (500, "model_changed")
        assert done.json()["tokens"] == oracle([3], 2), "it has the same tokenizer, so it can still be read"


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        ({"numerics": "bfloat16 tp1"}, {"numerics": "float32 tp2"}, True),
        ({"numerics": "bfloat16 tp1"}, {"numerics": "bfloat16 tp1", "deterministic": True}, True),
        ({"numerics": "bfloat16 tp1", "deterministic": True}, {"numerics": "bfloat16 tp1", "deterministic": True}, True),
        ({"numerics": "bfloat16 tp1", "deterministic": True}, {"numerics": "bfloat16 tp2", "deterministic": True}, False),
        ({"numerics": "bfloat16 tp1", "deterministic": True}, {"numerics": "bfloat16 tp1"}, False),
    ],
)
async def test_only_an_exact_answer_needs_the_same_numerics(tmp_path: Path, before: dict, after: dict, goes_on: bool) -> None:
    def change(r: Rig) -> None:
        r.settings = msgspec.structs.replace(r.settings, deterministic=False)
        r.settings = msgspec.structs.replace(r.settings, **after)

    async with next_incarnation(tmp_path, change, **before) as (r, scheduler):
        running, done = await both_answers(r, scheduler)
        assert done.json()["tokens"] == oracle([3], 2), "a finished answer can be read in any case"
        if goes_on:
            assert running.json()["tokens"] == oracle([1, 2], 8)
        else:
            error = running.json()["error"]
            assert (running.status_code, error["code"]) == (500, "model_changed")
            assert "other numerics" in error["message"]


async def test_a_server_with_fewer_gateways_goes_on_with_the_requests_of_all(tmp_path: Path) -> None:
    (tmp_path / "journal-0").mkdir()

    def leave_one_gateway(r: Rig) -> None:
        (tmp_path / "journal-0").rename(tmp_path / "journal-1")
        r.settings = msgspec.structs.replace(r.settings, gateways=1)

    async with next_incarnation(tmp_path, leave_one_gateway) as (r, scheduler):
        await until(lambda: not (tmp_path / "journal-1").exists())
        await until(lambda: bool(scheduler.running))
        assert len(scheduler.submits[-1].tokens) == 5, "the prompt and what was recorded"
        running, done = await both_answers(r, scheduler)
        assert running.json()["tokens"] == oracle([1, 2], 8)
        assert done.json()["tokens"] == oracle([3], 2)
        await r.kill_gateway()
        await r.start_gateway(3)
        assert (await both_answers(r, scheduler))[0].json()["tokens"] == oracle([1, 2], 8), "from its new journal"


async def test_finished_answers_are_decoded_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode_states = restore.decode_states

    def count(_: Rig) -> None:
        monkeypatch.setattr(restore, "decode_states", lambda blob: decoded.append(blob) or decode_states(blob))

    async with next_incarnation(tmp_path, count) as (r, scheduler):
        assert decoded == []
        assert (await both_answers(r, scheduler))[1].json()["tokens"] == oracle([3], 2)
        assert len(decoded) == 1


async def test_sequences_are_submitted_again_before_the_servers_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams wait for schedulers before they wait for their connections."""
    may_listen = asyncio.Event()
    opens = GatewayServers._open

    async def later(servers: GatewayServers, *arguments: Any, **more: Any) -> str:
        await may_listen.wait()
        return await opens(servers, *arguments, **more)

    async with rig(with_scheduler=False, with_socket=True, journal_path=str(tmp_path / "journal-0")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            asked = asyncio.ensure_future(http.post("/v1/generate", json=RUNNING))
            await until(lambda: len(scheduler.running) == 1)
            await written(r.gateway.journal)
            address = r.address
            listen_fd = r.leave_socket()
            await r.kill_gateway()
            asked.cancel()
        scheduler.running.clear()
        monkeypatch.setattr(GatewayServers, "_open", later)
        r.listen_at(listen_fd)
        starting = asyncio.ensure_future(r.start_gateway(2))
        await until(lambda: len(scheduler.running) == 1)
        assert not starting.done()
        may_listen.set()
        await starting
        assert r.address == address


async def test_a_first_token_that_an_earlier_gateway_has_shown_is_not_timed_again(tmp_path: Path) -> None:
    """What has passed until this gateway goes on is no time until the first token: each kill would look like slow prompts."""
    with capture_logs() as log:
        async with next_incarnation(tmp_path, lambda r: None) as (r, scheduler):
            request = r.gateway.manager.find("running")
            assert request is not None
            assert request.first_token_s > 0.0, "a part of its answer has been shown"
            assert (await both_answers(r, scheduler))[0].status_code == 200
            assert r.gateway.manager.metrics.latencies()["time_to_first_token"]["count"] == 0
    (line,) = [line for line in log if line["event"] == "request" and line["request"] == "running"]
    assert (line["output_tokens"], line["first_token_ms"]) == (8, None)
