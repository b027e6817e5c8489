"""Requests of low priority that keep a server busy, in a process of their own, so that they delay no client that is measured.

python -m ops.bench.children.crowd_child ENDPOINT
The first line that it reads is a Crowd, and it answers when the server is busy; each further line asks for the tokens so far.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import msgspec
import uvloop

from messages.client import AsyncClient
from messages.errors import ClientError
from ops.bench.children.line_child import reserve_output

IDS = range(100, 20_000)  # which every vocabulary has that is worth a measurement
_BUSY_S = 120.0  # at most until as many have a token as the server has slots
_DEADLINE_S = 300.0


class Crowd(msgspec.Struct, frozen=True):
    """`requests` of `prompt_tokens` and `new_tokens` each, of which `slots` run at once. A high `priority` is a late one."""

    requests: int
    slots: int
    prompt_tokens: int
    new_tokens: int
    priority: int
    seed: int


class CrowdTold(msgspec.Struct, frozen=True):
    """What the requests got so far. `error`: what ended one of them, or that the server was not busy in time; "": nothing."""

    tokens: int = 0
    error: str = ""


class _Crowd:
    def __init__(self, client: AsyncClient, crowd: Crowd) -> None:
        rng = random.Random(crowd.seed)
        prompts = [[rng.choice(IDS) for _ in range(crowd.prompt_tokens)] for _ in range(crowd.requests)]
        self._client, self._crowd = client, crowd
        self._n_tokens = self._n_begun = 0
        self._tasks = [asyncio.create_task(self._one(prompt)) for prompt in prompts]

    async def busy(self) -> CrowdTold:
        """When as many requests have a token as the server has slots."""
        end_s = time.monotonic() + _BUSY_S
        while self._n_begun < self._crowd.slots and not self.told().error:
            if time.monotonic() > end_s:
                return CrowdTold(error=f"slots: expected {self._crowd.slots} requests with a token, got {self._n_begun}")
            await asyncio.sleep(0.02)
        return self.told()

    def told(self) -> CrowdTold:
        """As of now."""
        errors = (task.exception() for task in self._tasks if task.done())
        return CrowdTold(self._n_tokens, next((str(error) for error in errors if error is not None), ""))

    async def _one(self, prompt: list[int]) -> None:
        options = {"priority": self._crowd.priority, "max_tokens": self._crowd.new_tokens, "temperature": 0.8}
        has_begun = False
        async for piece in self._client.stream(tokens=prompt, ignore_eos=True, deadline_s=_DEADLINE_S, **options):
            self._n_tokens += len(piece.ids)
            self._n_begun += bool(piece.ids) and not has_begun
            has_begun = has_begun or bool(piece.ids)


async def _main(endpoint: str) -> None:
    replies = reserve_output()
    client, crowd = AsyncClient(endpoint), None
    while line := await asyncio.to_thread(sys.stdin.readline):
        if crowd is None:
            try:
                await client.models()  # a server that is not there is an answer too
                crowd = _Crowd(client, msgspec.json.decode(line, type=Crowd))
                told = await crowd.busy()
            except ClientError as error:
                told = CrowdTold(error=str(error))
        else:
            told = crowd.told()
        replies.write(msgspec.json.encode(told).decode() + "\n")
        replies.flush()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
