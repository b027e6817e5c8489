"""What a gateway does for a caller does not depend on what others have asked: its times tell nothing of their answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from messages.caches import prefixes, similar
from messages.embedding import Embed
from messages.generation.sequences import Submit
from messages.wire.message import NO_TRACE, Message
from tests.support.answers.directory import add_directory
from tests.support.answers.equal_requests import comparable
from tests.support.answers.similar_rig import similar_rig
from tests.support.gateway.gateway_rig import Rig, rig

VICTIM, ATTACKER = "victim", "attack"
PROBE, OTHER = "what is a tardigrade, and where does it live", "why is the sky so blue in the evenings of Mx"  # equal lengths
_ASKED = (Submit, prefixes.FindPrefix, similar.FindSimilar, Embed)  # what a request waits for
_OWN_HEADERS = ("date", "x-request-id", "server-timing")
_Told = list[tuple[Any, ...]]


class _Seen:
    """What a gateway tells others because of one request, how full it is then, and what the client gets."""

    def __init__(self, r: Rig) -> None:
        self.told: _Told = []
        self.answer: tuple[Any, ...] = ()
        self._gate, self._send = r.manager.gate, r.gateway.mailbox.send
        r.gateway.mailbox.send = self._note

    def _note(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        if isinstance(message, _ASKED):
            tokens = [int(one) for one in getattr(message, "tokens", ())]
            hint = getattr(message, "holder", None)
            self.told.append((name, type(message).__name__, tokens, hint, self._gate.n_active, self._gate.queued.shares.n_held))
        self._send(name, message, trace)


async def ask(http: httpx.AsyncClient, caller: str, text: str) -> httpx.Response:
    """An answer to a greedy question."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 6, "temperature": 0}
    answer = await http.post("/v1/chat/completions", json=body, headers={"x-tenant": caller})
    assert answer.status_code == 200, answer.text
    return answer


def made(folder: Path) -> Path:
    """A new folder."""
    folder.mkdir()
    return folder


def shown(answer: httpx.Response) -> tuple[Any, ...]:
    """What a client sees of an answer besides its times and ids."""
    return {name: value for name, value in answer.headers.items() if name not in _OWN_HEADERS}, comparable(answer)


async def seen_after(folder: Path, asked: str, *, by: str, cache: str) -> tuple[_Told, tuple[Any, ...]]:
    """What becomes of the probe of the attacker, after a caller has asked a question whose answer is kept."""
    async with similar_rig(folder, answer_cache=cache, caller_header="x-tenant") as (r, http, directory):
        await ask(http, by, asked)
        if cache == "semantic":
            await r.cluster.wait_until(lambda: directory.statistics()["similar_answers"] == 1)
        else:
            await r.cluster.wait_until(lambda: directory.statistics()["shared_answers"] == 1)
        seen = _Seen(r)
        return seen.told, shown(await ask(http, ATTACKER, PROBE))


@pytest.mark.parametrize("cache", ["exact", "semantic"])
async def test_a_kept_answer_of_another_caller_changes_nothing(tmp_path: Path, cache: str) -> None:
    known = await seen_after(made(tmp_path / "known"), PROBE, by=VICTIM, cache=cache)
    unknown = await seen_after(made(tmp_path / "unknown"), OTHER, by=VICTIM, cache=cache)
    assert known == unknown
    assert "x-cache" not in known[1][0]
    assert any(one[1] == "Submit" for one in known[0])
    own = await seen_after(made(tmp_path / "own"), PROBE, by=ATTACKER, cache=cache)
    assert own[1][0]["x-cache"] == "hit", "it would find a leak"
    assert own[0] != unknown[0]


async def test_a_similar_answer_of_another_caller_changes_nothing(tmp_path: Path) -> None:
    """All questions of one circle are similar here; the probe has not been asked before."""
    known = await seen_after(made(tmp_path / "known"), OTHER, by=VICTIM, cache="semantic")
    alone = made(tmp_path / "alone")
    async with similar_rig(alone, caller_header="x-tenant") as (r, http, _):
        seen = _Seen(r)
        assert (seen.told, shown(await ask(http, ATTACKER, PROBE))) == known
    own = await seen_after(made(tmp_path / "own"), OTHER, by=ATTACKER, cache="semantic")
    assert own[1][0]["x-cache"] == "semantic", "it would find a leak"
    assert not any(one[1] == "Submit" for one in own[0])


async def seen_beside(asked: str, *, by: str) -> tuple[_Told, tuple[Any, ...]]:
    """What becomes of the probe of the attacker, while a question of a caller is being answered."""
    settings: dict[str, Any] = {"answer_coalescing": True, "caller_header": "x-tenant"}
    async with rig(with_scheduler=False, **settings) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        before = asyncio.ensure_future(ask(http, by, asked))
        await r.cluster.wait_until(lambda: len(scheduler.submits) == 1)
        seen = _Seen(r)
        probe = asyncio.ensure_future(ask(http, ATTACKER, PROBE))
        await r.cluster.wait_until(lambda: r.manager.gate.n_active == 2)
        await r.cluster.settle(20)
        while not (before.done() and probe.done()):
            scheduler.step()
            await r.cluster.settle(5)
        await before
        return seen.told, shown(await probe)


async def test_a_question_that_another_caller_is_asking_changes_nothing() -> None:
    known, unknown = await seen_beside(PROBE, by=VICTIM), await seen_beside(OTHER, by=VICTIM)
    assert known == unknown
    assert [one[1] for one in known[0]] == ["Submit"]
    own = await seen_beside(PROBE, by=ATTACKER)
    assert not own[0], "it would find a leak: it follows the other one, and is not computed"


async def hashes_asked_for(folder: Path, caller: str) -> list[int]:
    """The pages of the probe for which a gateway asks the directory, in the name of a caller."""
    asked = list[int]()
    async with rig(caller_header="x-tenant") as r, r.http() as http:
        await r.add_scheduler("scheduler/1")  # with one alone there is nothing to ask
        await add_directory(r, folder)
        send = r.gateway.mailbox.send

        def note(name: str, message: Message, trace: bytes = NO_TRACE) -> None:
            if isinstance(message, prefixes.FindPrefix):
                asked.extend(message.hashes.tolist())
            send(name, message, trace)

        r.gateway.mailbox.send = note
        await ask(http, caller, PROBE)
    return asked


async def test_a_caller_asks_the_directory_for_pages_that_no_other_can_have(tmp_path: Path) -> None:
    own, again = await hashes_asked_for(made(tmp_path / "1"), ATTACKER), await hashes_asked_for(made(tmp_path / "2"), ATTACKER)
    assert own == again
    assert own
    assert not {*own} & {*await hashes_asked_for(made(tmp_path / "3"), VICTIM)}
