"""The ledger of the host tier of one memory generation after the other. Pure."""

from __future__ import annotations

from collections.abc import Callable

from actors.pages.host_ledger import HostLedger
from actors.pages.seal_table import Seals, SealTable, private_table
from actors.pages.sizing.sized_host_ledger import SizedHostLedger
from actors.pages.sizing.working_set import SizingRule
from actors.scheduler.settings import SchedulerSettings


class HostContents:
    """What lies in the host tier, as far as the scheduler knows. seals: where tables of places outlive the scheduler.
    settings: whether its size follows the load. now_s: the monotonic clock."""

    def __init__(self, seals: Seals, settings: SchedulerSettings, now_s: Callable[[], float]) -> None:
        self._seals, self._settings, self._now_s = seals, settings, now_s
        self.ledger = HostLedger(private_table(0, 0))
        self._left: HostLedger | None = None  # of the last scheduler, adopted in advance
        self._has_begun = False

    def prepare(self) -> None:
        """Adopt in advance what the last scheduler has left."""
        if not self._has_begun and self._left is None and (table := self._seals.left()) is not None:
            self._left = self._ledger_of(table)

    def begin(self, generation: int, n_places: int, n_least: int) -> None:
        """A gang begins. `ledger` is of its places then: the present one if it is of this memory generation, that of the last
        scheduler, or an empty one. n_least: places in use at the least, if their number follows the load; 0: all."""
        before, left, self._left, self._has_begun = self.ledger, self._left, None, True
        for host in (before, left):
            if host is not None and (host.generation, host.n_places) == (generation, n_places):
                self.ledger = host
                break
        else:
            table = self._seals.open(generation, n_places) if n_places else None
            self.ledger = self._ledger_of(table or private_table(generation, n_places))
        if isinstance(self.ledger, SizedHostLedger):
            self.ledger.begin(n_least, is_new=self.ledger is not before)

    def clear(self) -> None:
        """Forget all contents, also those of the last scheduler."""
        for host in (self.ledger, self._left):
            if host is not None:
                host.clear()
        self._left = None

    def _ledger_of(self, table: SealTable) -> HostLedger:
        settings = self._settings
        if settings.host_follows_load:
            return SizedHostLedger(table, SizingRule(settings.host_quiet_s, settings.kv_spare_share), self._now_s)
        return HostLedger(table, self._now_s)
