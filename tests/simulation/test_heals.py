"""A process that was stopped for seconds and continues, or is replaced meanwhile: within a second every stream flows again."""

from __future__ import annotations

from typing import ClassVar

import pytest

from messages.ids import SUPERVISOR
from tests.support.simulation.faults.harm_of_streams import HarmOfStreams, simulate_streams

pytestmark = pytest.mark.seeds

_HEALED_S = 1.0  # virtual time
_NEEDED = ("gateway/0", "scheduler/0", "worker/0.0")  # streams stand still without them
_OTHERS = ("cache_directory/0", "speculation/0", "custodian/0", "vault/0", SUPERVISOR)
_LONG = pytest.mark.long
_PAUSES = [
    *(pytest.param(name, 10.0) for name in _NEEDED),
    *(pytest.param(name, for_s, marks=_LONG) for name in _NEEDED for for_s in (1.0, 5.0, 30.0)),
    *(pytest.param(name, for_s, marks=_LONG) for name in _OTHERS for for_s in (1.0, 5.0, 10.0, 30.0)),
]


class Pause(HarmOfStreams):
    """Stops one process while all streams run, and waits until each has a new token after it has healed."""

    name: ClassVar[str]
    for_s: ClassVar[float]
    healed_s: ClassVar[float]  # from the end of the pause, or the readiness of a next process, to the last stream's next token

    async def run(self) -> None:
        await self.until_all(0.0)
        began_s = self._loop.time()
        incarnation = self.stop(self.name, self.for_s)
        await self.until(lambda: self._loop.time() >= began_s + self.for_s or self._is_replaced(incarnation))
        back_s = self._loop.time()
        await self.until_all(back_s)
        Pause.healed_s = self._loop.time() - back_s

    def _is_replaced(self, incarnation: int) -> bool:
        if self.name == SUPERVISOR:
            return False
        process = self.newest(self.name)
        is_new = process.spawn_spec is not None and process.spawn_spec.incarnation > incarnation
        return is_new and process.actor is not None and process.actor.child.is_ready


@pytest.mark.parametrize(("name", "for_s"), _PAUSES)
def test_streams_flow_again_within_a_second(name: str, for_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for attribute, value in (("name", name), ("for_s", for_s), ("healed_s", -1.0)):
        monkeypatch.setattr(Pause, attribute, value, raising=False)
    max_tokens = 400 if name == SUPERVISOR else 80  # nobody replaces a supervisor here before its pause is over
    simulate_streams(Pause, monkeypatch, max_tokens)
    assert 0.0 <= Pause.healed_s <= _HEALED_S
