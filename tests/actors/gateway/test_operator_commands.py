"""Commands of an admin get the supervisor's answers in their order, and a refusal says why."""

from __future__ import annotations

import asyncio

import pytest

from actors.gateway import operator_commands
from actors.gateway.operator_commands import OperatorCommands
from actors.gateway.requests.refusals import Refusal
from messages.lifecycle.tree import CommandTaken, DrainWanted, ServeWanted, TreeState
from messages.wire.message import Message


def drain(me: str) -> Message:
    return DrainWanted(reply_to=me, deadline_s=1.0, then_stop=False)


def serve(me: str) -> Message:
    return ServeWanted(reply_to=me)


async def test_answers_belong_to_commands_in_their_order() -> None:
    sent: list[Message] = []
    commands = OperatorCommands("ipc://me", sent.append)
    first, second = asyncio.ensure_future(commands.give(drain)), asyncio.ensure_future(commands.give(serve))
    await asyncio.sleep(0)
    assert sent == [drain("ipc://me"), serve("ipc://me")]
    commands.answered(CommandTaken(state=TreeState.DRAINING))
    commands.answered(CommandTaken(state=TreeState.SERVING, refusal="the server is stopping"))
    assert (await first).state == TreeState.DRAINING
    with pytest.raises(Refusal, match="the server is stopping") as refused:
        await second
    assert refused.value.status == 409


async def test_a_late_answer_is_not_taken_for_that_of_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = OperatorCommands("ipc://me", lambda message: None)
    monkeypatch.setattr(operator_commands, "_WAIT_S", 0.0)
    with pytest.raises(Refusal, match="has not answered") as refused:
        await commands.give(drain)
    assert refused.value.status == 503
    monkeypatch.undo()
    later = asyncio.ensure_future(commands.give(serve))
    await asyncio.sleep(0)
    commands.answered(CommandTaken(state=TreeState.DRAINING))
    commands.answered(CommandTaken(state=TreeState.SERVING))
    assert (await later).state == TreeState.SERVING


async def test_an_answer_that_a_dead_supervisor_owes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = OperatorCommands("ipc://me", lambda message: None)
    monkeypatch.setattr(operator_commands, "_WAIT_S", 0.0)
    with pytest.raises(Refusal):
        await commands.give(drain)
    monkeypatch.undo()
    monkeypatch.setattr(operator_commands, "_FORGOTTEN_S", -1.0)
    later = asyncio.ensure_future(commands.give(serve))
    await asyncio.sleep(0)
    commands.answered(CommandTaken(state=TreeState.SERVING))
    assert (await later).state == TreeState.SERVING
