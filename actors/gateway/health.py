"""The health of the server as one gateway sees it: whether it does its work, not only whether its processes live.

    serving      requests are accepted and computed, or would be               status 200
    degraded     the same, but a replica is down, sick, cordoned or stands
                 still, or only one of another model than the main one can
                 compute                                                       200
    stalled      no replica gets on with its work                              503
    unavailable  no replica can compute that is not cordoned, the journal
                 cannot be written, or new connections are refused because
                 too few file descriptors are free                             503
    draining     nothing new is accepted                                       503

The gateway only reports health. Only the supervisor kills processes, and it decides by its own checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from actors.gateway.dispatch.post import Post
from actors.gateway.journal.journal import Journal
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.standstill import Standstill
from messages.descriptors.reserve import process_reserve
from messages.generation.replica_state import ReplicaCondition
from messages.generation.sequences import Holding
from messages.ids import actor_name, memory_owner, model_of, replica_of


@dataclass(frozen=True)
class _Facts:
    """What is true at one time. `stalled`: the schedulers that stand still, and for how many seconds."""

    conditions: dict[str, ReplicaCondition]
    with_gang: set[str]  # the schedulers whose first worker lives
    cordoned: list[str]  # the schedulers whose replicas an operator has taken out of use
    stalled: dict[str, float]
    is_journal_healthy: bool
    is_out_of_files: bool
    is_draining: bool

    @property
    def capable(self) -> set[str]:
        """The schedulers to which new requests can go: their gangs can compute, and nobody has cordoned them. One that is down
        but has its workers is about to be up."""
        able = {name for name in self.with_gang if self.conditions[name] is not ReplicaCondition.SICK}
        return able.difference(self.cordoned)

    @property
    def of_main(self) -> set[str]:
        """Those of them that serve the main model."""
        return {name for name in self.capable if not model_of(name)}

    @property
    def state(self) -> str:
        """serving, degraded, stalled, unavailable or draining, as the head of this file defines them."""
        if self.is_draining:
            return "draining"
        if not (self.capable and self.is_journal_healthy) or self.is_out_of_files:
            return "unavailable"
        if not (self.of_main or self.capable) - self.stalled.keys():
            return "stalled"
        is_whole = self.of_main and (
            len(self.conditions) == 1 or all(one is ReplicaCondition.UP for one in self.conditions.values())
        )
        return "serving" if is_whole and not self.stalled and not self.cordoned else "degraded"

    def reasons(self) -> list[str]:
        """Why the state is not "serving", in sentences."""
        reasons = ["the server is draining"] if self.is_draining else []
        if not self.is_journal_healthy:
            reasons.append("the request journal cannot be written")
        if self.is_out_of_files:
            reasons.append("this gateway has too few free file descriptors, so it accepts no connection")
        if not self.conditions:
            reasons.append("no scheduler is ready")
        elif not any(model_of(name) == 0 for name in self.conditions):
            reasons.append("no scheduler of the main model is ready")
        reasons += [f"{name}: its replica is {one}" for name, one in self.conditions.items() if one is not ReplicaCondition.UP]
        reasons += [f"{name}: its replica is cordoned, and gets no new requests" for name in self.cordoned]
        return reasons + [f"{name}: work waits, and no step has ended for {s:.0f} s" for name, s in self.stalled.items()]


class Health:
    """Answers /health. `stalled_s`: work that waits for this time without any progress is a standstill."""

    def __init__(self, model_name: str, stalled_s: float, post: Post, manager: RequestManager, journal: Journal) -> None:
        self._model_name, self._post, self._manager, self._journal = model_name, post, manager, journal
        self._standstill = Standstill(stalled_s)

    def on_holding(self, scheduler: str, message: Holding) -> None:
        """A scheduler has reported how many steps are done."""
        self._standstill.heard(scheduler, int(message.steps), self._post.now_s())

    def update(self) -> None:
        """Note which schedulers have work now. Call it about once a second."""
        loads = self._manager.dispatcher.book.loads(self._post.living("scheduler"))
        self._standstill.update(loads, self._post.now_s())

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Returns whether requests are served now, and the JSON of /v1/health."""
        self.update()
        facts = self._facts()
        parts = {
            "schedulers": list(facts.conditions),
            "workers": self._post.living("worker"),
            "replicas": facts.conditions,
            "cordoned": facts.cordoned,
            "cache_directory": bool(self._post.living("cache_directory")),
            "speculation": bool(self._post.living("speculation")),
            "journal": str(self._journal.state),
        }
        body = {"status": facts.state, "model": self._model_name, "reasons": facts.reasons(), "parts": parts}
        return facts.state in ("serving", "degraded"), body

    def _facts(self) -> _Facts:
        schedulers, ranks = self._post.living("scheduler"), self._post.living("worker")
        in_either_seat = {memory_owner(name) for name in ranks}
        with_gang = {name for name in schedulers if actor_name("worker", replica_of(name), 0) in in_either_seat}
        told = self._manager.dispatcher.failover.replicas
        return _Facts(
            {name: told.condition(name) if name in with_gang else ReplicaCondition.DOWN for name in schedulers},
            with_gang,
            [name for name in schedulers if told.is_cordoned(name)],
            self._standstill.lasting(self._post.now_s()),
            self._journal.is_healthy,
            process_reserve().is_short,
            self._manager.gate.is_draining,
        )
