"""Commands that an admin gives over HTTP, and that the supervisor carries out: drains and cordons."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from actors.gateway.requests.refusals import Refusal
from messages.lifecycle.tree import CommandTaken
from messages.wire.message import Message

_WAIT_S = 5.0
_FORGOTTEN_S = 60.0  # the supervisor that was asked has died


@dataclass(frozen=True)
class _GivenCommand:
    at_s: float
    answer: asyncio.Future[CommandTaken]


class OperatorCommands:
    """Sends commands to the supervisor, which answers in the order in which they come."""

    def __init__(self, endpoint: str, send_to_supervisor: Callable[[Message], None]) -> None:
        self._endpoint, self._send = endpoint, send_to_supervisor
        self._asked: deque[_GivenCommand] = deque()

    async def give(self, command: Callable[[str], Message]) -> CommandTaken:
        """The supervisor's answer. `command`: makes the message for a gateway with this endpoint.

        Raises: Refusal if the supervisor refuses the command, or does not answer in time; it may carry it out later then."""
        loop = asyncio.get_running_loop()
        while self._asked and loop.time() - self._asked[0].at_s > _FORGOTTEN_S:
            self._asked.popleft()
        answer: asyncio.Future[CommandTaken] = loop.create_future()
        self._asked.append(_GivenCommand(loop.time(), answer))
        self._send(command(self._endpoint))
        try:
            taken = await asyncio.wait_for(asyncio.shield(answer), _WAIT_S)
        except TimeoutError:
            detail = f"the supervisor has not answered within {_WAIT_S:g} s; it may still carry the command out"
            raise Refusal("unavailable", detail, retry_after_s=1.0) from None
        if taken.refusal:
            raise Refusal("conflict", taken.refusal)
        return taken

    def answered(self, message: CommandTaken) -> None:
        """An answer has come."""
        if self._asked:
            asked = self._asked.popleft()
            if not asked.answer.done():
                asked.answer.set_result(message)
