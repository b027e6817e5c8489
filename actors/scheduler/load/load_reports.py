"""Tells gateways the load of a scheduler's replica when it has changed by something that matters."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec

from actors.actor import Actor
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.load.degradation import Degradation
from actors.scheduler.load.throughput import Throughput
from actors.scheduler.metrics import SchedulerMetrics
from actors.scheduler.sequences.queues import SequenceQueues
from messages.errors import MailboxFull, UnknownPeer
from messages.generation.replica_load import DegradationLevel, ReplicaLoad
from messages.steps import PAGE_TOKENS

EVERY_S = 0.1  # between two reports, at least
_PARTS = 8  # a number matters that has changed by more than an eighth
_LEAST_TOKENS = 64  # fewer tokens do not matter, unless there were none or there are none now
_NOTHING = ReplicaLoad(
    number=0, waiting=0, running=0, waiting_tokens=0, running_tokens=0, pages_used=0, pages=0, prefill_rate=0.0, decode_rate=0.0
)


class LoadReports:
    """The reports of one scheduler. `actor` sends them; `queues`, `gang` and `metrics` have the numbers."""

    def __init__(
        self, actor: Actor, queues: SequenceQueues, gang: GangView, metrics: SchedulerMetrics, degraded_wait_s: float
    ) -> None:
        """`degraded_wait_s`: see `Degradation`."""
        self._actor, self._queues, self._gang, self._metrics = actor, queues, gang, metrics
        self._throughput, self._degradation = Throughput(), Degradation(degraded_wait_s)
        self._told = _NOTHING
        self._next_s = 0.0  # when the next report may be sent, on the monotonic clock
        self._timer: asyncio.TimerHandle | None = None

    @property
    def level(self) -> DegradationLevel:
        """The level of degradation, as of the last look."""
        return self._degradation.level

    @property
    def wait_s(self) -> float:
        """How long the work that waits now takes; 0 while no rate is known."""
        return self._load().wait_s

    @property
    def _is_computing(self) -> bool:
        """Sequences run. Those whose gang has died wait for the next one in their slots, and tell nothing of its pace."""
        return self._gang.is_alive and bool(self._queues.running)

    def send_changes(self) -> None:
        """Tell every gateway the load, if it has changed. Within 100 ms after the last look, look again when they are over."""
        if not self._is_computing:
            self._throughput.rest()
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._look(now_s)
        elif self._timer is None:
            self._look_in(self._next_s - now_s)

    def tell(self, gateway: str) -> None:
        """Tell one gateway what has been told to the others. One that cannot be told learns the next load."""
        with suppress(UnknownPeer, MailboxFull):
            self._actor.send(gateway, self._told)

    def _look_in(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look_late)

    def _look_late(self) -> None:
        self._timer = None
        if self._actor.child.is_stopping:
            return
        try:
            self._look(time.monotonic())
        except Exception as error:
            self._actor.fail("load report", error)

    def _look(self, now_s: float) -> None:
        if self._is_computing:
            n_computed, n_generated = self._metrics.n_computed, self._metrics.n_generated
            self._throughput.read(now_s, n_computed, n_generated, is_queued=bool(self._queues.waiting))
        self._next_s = now_s + EVERY_S
        load = self._load()
        level = self._degradation.update(load.wait_s, now_s)
        if level is not load.level:
            self._metrics.degradation_level.set(level)
            self._actor.log.info(
                "degradation", degradation_level=int(level), wait_s=round(load.wait_s, 1), waiting=load.waiting
            )
            load = msgspec.structs.replace(load, level=level)
        if level and self._timer is None:
            self._look_in(EVERY_S)  # without mail the level falls too
        if not matters(self._told, load):
            return
        self._told = msgspec.structs.replace(load, number=self._told.number + 1)
        for gateway in self._actor.child.names_of("gateway"):
            self.tell(gateway)

    def _load(self) -> ReplicaLoad:
        queues, ledger, capacity = self._queues, self._gang.ledger, self._gang.capacity
        n_pages = 0 if capacity is None else capacity.n_pages
        return ReplicaLoad(
            number=self._told.number,
            waiting=len(queues.waiting),
            running=len(queues.running),
            waiting_tokens=queues.work.n_tokens,
            running_tokens=queues.work.left_of_all(queues.running),
            pages_used=0 if ledger is None else max(n_pages - ledger.n_available, 0),
            pages=n_pages,
            prefill_rate=self._throughput.prefill_rate,
            decode_rate=self._throughput.decode_rate,
            level=self._degradation.level,
            token_s=self._gang.cost.token_s,
            pair_s=self._gang.cost.pair_s,
            token_bytes=0 if capacity is None else capacity.page_bytes // PAGE_TOKENS,
        )


def matters(told: ReplicaLoad, now: ReplicaLoad) -> bool:
    """True if the load has changed so much that gateways should know."""
    if told.level is not now.level or told.pages != now.pages or told.token_bytes != now.token_bytes:
        return True
    if _differ(told.waiting, now.waiting) or _differ(told.running, now.running):
        return True
    if _differ(told.waiting_tokens, now.waiting_tokens, _LEAST_TOKENS):
        return True
    if _differ(told.running_tokens, now.running_tokens, _LEAST_TOKENS):
        return True
    if _differ(told.pages_used, now.pages_used, now.pages // (4 * _PARTS)):
        return True
    if _differ(told.token_s, now.token_s) or _differ(told.pair_s, now.pair_s):
        return True
    rates = (told.prefill_rate, now.prefill_rate), (told.decode_rate, now.decode_rate)
    return any(_differ(before, after, 1.0) for before, after in rates)


def _differ(before: float, after: float, least: float = 0.0) -> bool:
    """True if one of the numbers is 0 and the other is not, or if they differ by more than an eighth and `least`."""
    if (before == 0) != (after == 0):
        return True
    return abs(before - after) > max(least, max(before, after) / _PARTS)
