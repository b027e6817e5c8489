"""An actor of any role that keeps a diary and misbehaves as its settings say.

behaviour     it
------------  -------------------------------------------------------------
good          serves
fails         raises in its start
unusable      refuses its settings
hopeless      meets an error in its start that every start would meet
silent        never comes to its Hello
stuck         beats beside a step that does not end
deaf          ignores Stop
busy          has a request that finishes at SIGUSR1
faulty        meets an error at SIGUSR1
leaves        exits with status 7 at SIGUSR1
freezes       blocks its loop at SIGUSR1
full          has a journal that cannot be written until SIGUSR1
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from actors.actor import Actor, Handler
from messages.child import LIFECYCLE_KINDS
from messages.errors import ConfigError
from messages.ids import role_of
from messages.lifecycle.lifecycle import Peer
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.routes import received_by
from messages.wire.message import Message


class StubActor(Actor):
    """The stub: one incarnation of it."""

    def __init__(self, spawn_spec: SpawnSpec) -> None:
        self.behaviour = msgspec.json.decode(spawn_spec.settings).get("behaviour", "good")
        self._diary = Path(spawn_spec.run_dir) / f"diary-{spawn_spec.name.replace('/', '-')}"
        super().__init__(spawn_spec)

    def handlers(self) -> Mapping[type[Message], Handler]:
        return dict.fromkeys(received_by(role_of(self.spawn_spec.name)) - LIFECYCLE_KINDS, lambda delivery, message: None)

    async def start(self) -> dict[str, str]:
        if self.behaviour == "fails":
            raise RuntimeError("no weights here")
        if self.behaviour == "hopeless":
            raise ConfigError("model: expected a better one")
        self.child.loading("stub", 0.5)
        loop = asyncio.get_running_loop()
        if self.behaviour == "faulty":
            loop.add_signal_handler(signal.SIGUSR1, self.fail, "SIGUSR1", RuntimeError("as asked"))
        elif self.behaviour == "leaves":
            loop.add_signal_handler(signal.SIGUSR1, os._exit, 7)
        elif self.behaviour == "freezes":
            loop.add_signal_handler(signal.SIGUSR1, time.sleep, 1e6)
        elif self.behaviour == "full":
            loop.add_signal_handler(signal.SIGUSR1, setattr, self, "behaviour", "good")
        return {"behaviour": self.behaviour}

    async def stop(self) -> None:
        self._write("stop")
        if self.behaviour == "deaf":
            await asyncio.Event().wait()

    def drain(self, deadline_s: float) -> None:
        self._write("drain")
        if self.behaviour == "busy":
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.child.drained)
        else:
            self.child.drained()

    def peer_up(self, peer: Peer) -> None:
        self._write(f"up {peer.name} {peer.incarnation}")

    def peer_down(self, name: str, incarnation: int) -> None:
        self._write(f"down {name} {incarnation}")
        self._write(f"cause {name} {incarnation} {self.child.deaths[name].cause}")

    def progress(self) -> tuple[int, float]:
        return (3, 1e6) if self.behaviour == "stuck" else (3, 0.0)

    def statistics(self) -> dict[str, float]:
        return {"journal_refuses": 1.0} if self.behaviour == "full" else {}

    def _write(self, line: str) -> None:
        with self._diary.open("a") as diary:
            diary.write(line + "\n")


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation; returns its exit status."""
    behaviour = msgspec.json.decode(spawn_spec.settings).get("behaviour", "good")
    if behaviour == "unusable":
        raise ConfigError("stub.behaviour: expected something usable, got unusable")
    if behaviour == "silent":
        await asyncio.Event().wait()
    return await StubActor(spawn_spec).run()
