"""What the log says of the loss of a gang and of the next one, with the time that each phase took until tokens came again."""

from __future__ import annotations

import time
from collections.abc import Sequence as Several
from enum import StrEnum

from actors.actor import Actor
from actors.pages.page_ledger import PageLedger
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from messages.lifecycle.lifecycle import Cause
from messages.log_file.request_names import names_of
from messages.steps import EngineCapacity


class OutagePhase(StrEnum):
    """What was reached last."""

    LOST = "lost"  # the death is known
    RESET = "reset"  # the next gang was asked to reset
    READY = "ready"  # it has memory and slots
    PLANNED = "planned"  # the first plan was sent


class Outages:
    """The losses of one scheduler's gang. `actor` has the log. While nothing is lost each call compares two values."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._reached_s: dict[OutagePhase, float] = {}  # of the newest loss; empty: tokens have come since

    def lost(self, name: str, incarnation: int, cause: Cause, running: Several[Sequence]) -> None:
        """A rank is lost. `running`: the sequences whose steps are lost with it; none where the gang was lost before."""
        # the supervisor warns of a rank that ends without being asked to
        log = self._actor.log.info if cause == "ended" else self._actor.log.warning
        log("rank lost", rank=name, rank_incarnation=incarnation, cause=cause, running=len(running))
        if running:
            names = names_of(sequence.request for sequence in running)
            self._actor.log.info("requests are computed again", requests=names)
            self._reached_s = {OutagePhase.LOST: time.monotonic()}

    def reset(self) -> None:
        """All ranks of the next gang were asked to reset."""
        self._reach(OutagePhase.RESET)

    def ready(
        self, epoch: int, usable: EngineCapacity, queues: SequenceQueues, ledger: PageLedger | None, n_tail_tokens: int
    ) -> None:
        """Plans can be sent. `n_tail_tokens`: kept in partly filled pages."""
        self._reach(OutagePhase.READY)
        sequences = {"running": len(queues.running), "waiting": len(queues.waiting)}
        pages = {"adopted_pages": ledger.n_known if ledger else 0, "kept_tail_tokens": n_tail_tokens}
        self._actor.log.info("gang ready", epoch=epoch, device=usable.device, **sequences, **pages)

    def planned(self) -> None:
        """A plan was sent."""
        if self._reached_s and OutagePhase.PLANNED not in self._reached_s:
            self._reach(OutagePhase.PLANNED)

    def computed(self) -> None:
        """A step has ended."""
        if not self._reached_s:
            return
        reached_s, self._reached_s = self._reached_s, {}
        lost_s = reached_s.pop(OutagePhase.LOST)
        after_ms = {f"{phase}_ms": round(1e3 * (at_s - lost_s), 1) for phase, at_s in reached_s.items()}
        self._actor.log.info("tokens again", **after_ms, computed_ms=round(1e3 * (time.monotonic() - lost_s), 1))

    def _reach(self, phase: OutagePhase) -> None:
        """A later gang begins these phases anew."""
        if self._reached_s:
            self._reached_s[phase] = time.monotonic()
            if phase is not OutagePhase.PLANNED:
                self._reached_s.pop(OutagePhase.PLANNED, None)
