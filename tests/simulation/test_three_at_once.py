"""Three processes that are killed or stopped at the same moment: no promise is broken, and streams flow again soon."""

from __future__ import annotations

import random
from itertools import combinations
from typing import ClassVar

import pytest

from messages.ids import SUPERVISOR
from tests.support.simulation.faults.harm_of_streams import HarmOfStreams, simulate_streams

pytestmark = pytest.mark.seeds

_FLOWS_S = 4.0  # virtual time: the next supervisor, 1.2 s until a stop counts as a freeze, and the next processes
_STOP_S = 20.0
_N_EVENTS = 5  # new tokens of each stream, after which the harm is over
_NAMES = (
    *("gateway/0", "scheduler/0", "worker/0.0", "cache_directory/0", "speculation/0", "custodian/0", "vault/0"),
    SUPERVISOR,
)
_NEEDED = {"gateway/0", "scheduler/0", "worker/0.0"}  # streams stand still without them
_EVERY_OTHER = 8  # of the cases runs in each test run, all of them in long ones
Victims = tuple[tuple[str, bool], ...]  # (name, it is killed and not stopped)


def _cases() -> list[Victims]:
    """All triples in which one is needed. Each process is killed or stopped; a supervisor is killed, because no parent replaces
    a stopped one here."""
    chance = random.Random(1)
    triples = [names for names in combinations(_NAMES, 3) if _NEEDED.intersection(names)]
    return [tuple((name, name == SUPERVISOR or chance.random() < 0.5) for name in names) for names in triples]


class Three(HarmOfStreams):
    """Harms all victims at once, and waits until every stream has had new tokens some times."""

    victims: ClassVar[Victims]
    silent_s: ClassVar[float]  # the longest time without a token

    async def run(self) -> None:
        await self.until_all(0.0)
        began_s = self._loop.time()
        for name, is_killed in self.victims:
            if is_killed:
                self.kill(name)
            else:
                self.stop(name, _STOP_S)
        await self.until_all(began_s, _N_EVENTS)
        Three.silent_s = self.longest_s(began_s)


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(
            victims,
            marks=[pytest.mark.long] if index % _EVERY_OTHER else [],
            id=" ".join(f"{'kill' if is_killed else 'stop'}-{name}" for name, is_killed in victims),
        )
        for index, victims in enumerate(_cases())
    ],
)
def test_streams_flow_again(victims: Victims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Three, "victims", victims, raising=False)
    monkeypatch.setattr(Three, "silent_s", -1.0, raising=False)
    simulate_streams(Three, monkeypatch)
    assert 0.0 <= Three.silent_s <= _FLOWS_S
