"""Requests of gateways to forget cached pages: carried out at once, or as soon as the scheduler knows its pages. They are
answered when the disks of the ranks have forgotten theirs, because the next start of the server would find them; a disk that
does not answer keeps no gateway waiting for long, and is told again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from actors.actor import Actor
from actors.pages.forgetting import Forgetting
from actors.scheduler.gang.gang_view import GangView
from messages.caches.prefixes import ForgetPages, PagesForgotten
from messages.transport.mailbox import Delivery

_MOST_WAITING = 64
_DISK_S = 6.0  # a gateway waits for the disks


class _Asker(NamedTuple):
    gateway: str
    incarnation: int
    call: int


class CacheResets:
    """A call that is sent again is carried out once. What waits is bounded: the oldest call is dropped, and its gateway repeats
    it."""

    def __init__(self, actor: Actor, gang: GangView, now_s: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._actor, self._gang, self._now_s = actor, gang, now_s
        self._waiting: dict[_Asker, Forgetting] = {}
        self._done: dict[str, tuple[_Asker, int]] = {}  # the newest call of each gateway, and the number of its pages
        self._unanswered: dict[_Asker, tuple[int, float]] = {}  # carried out: number of pages, and when

    def on_forget(self, delivery: Delivery, message: ForgetPages) -> None:
        """A gateway asks, perhaps for the second time."""
        asker = _Asker(delivery.sender, delivery.sender_incarnation, int(message.call))
        done = self._done.get(asker.gateway)
        if done is not None and done[0] == asker:
            if asker not in self._unanswered:
                self._answer(asker, done[1])
            return
        self._waiting.pop(asker, None)
        while len(self._waiting) >= _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[asker] = Forgetting(message.scope, message.tokens.tobytes(), message.older_than_s)
        self.carry_out()

    def carry_out(self) -> None:
        """Carry out what waits, if the pages are known now. Must not be called while a plan is being made."""
        for asker, wanted in list(self._waiting.items()):
            n_pages = self._gang.forget(wanted)
            if n_pages is None:
                return
            del self._waiting[asker]
            self._done[asker.gateway] = asker, n_pages
            self._actor.log.info("cached pages are forgotten", pages=n_pages, gateway=asker.gateway)
            self._unanswered[asker] = n_pages, self._now_s()
            while len(self._unanswered) > _MOST_WAITING:
                del self._unanswered[next(iter(self._unanswered))]
        self.tell()

    def tell(self) -> None:
        """Answer what is carried out, as far as the disks have forgotten their pages too."""
        for asker, (n_pages, since_s) in list(self._unanswered.items()):
            is_late = self._now_s() - since_s >= _DISK_S
            if not (is_late or self._gang.tier.disk.contents.is_forgotten):
                continue
            if is_late:
                self._actor.log.error("a disk has not forgotten its pages yet; it is told again", gateway=asker.gateway)
            del self._unanswered[asker]
            self._answer(asker, n_pages)

    def _answer(self, asker: _Asker, n_pages: int) -> None:
        peer = self._actor.child.peers.get(asker.gateway)
        if peer is not None and peer.incarnation == asker.incarnation:
            self._actor.send(asker.gateway, PagesForgotten(call=asker.call, pages=n_pages))
