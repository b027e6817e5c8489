"""The KV memory of a gang as its scheduler sees it: the page ledger, and its record for the next scheduler (`SealTable`).

A *memory generation* is the time in which the contents of the memory are kept. It may outlive processes, and then the ledger is
kept too. The ledger of a new scheduler adopts what the last one has recorded. It does so while the ranks reset, before they say
which memory they have, because streams wait meanwhile; if they have another one, the work was in vain.
"""

from __future__ import annotations

from actors.pages.eviction.choice import make_eviction
from actors.pages.eviction.owned_entries import CacheShares
from actors.pages.eviction.place_shares import ScopeBounds
from actors.pages.forgetting import Forgetting, RootScopes
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.host_ledger import HostLedger
from actors.pages.seal_table import Seals, SealTable
from actors.pages.sizing.sized_ledger import SizedLedger
from actors.pages.sizing.working_set import SizingRule
from actors.scheduler.gang.applied_plans import AppliedPlans
from actors.scheduler.gang.open_page_records import record_open_pages
from actors.scheduler.planning.host_tier import HostTier
from actors.scheduler.planning.rows.advance import Advances
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings


class GangMemory:
    """The memory of one gang after the other. `settings`: the ledger's eviction policy, and whether it follows the load."""

    def __init__(self, settings: SchedulerSettings, seals: Seals, tier: HostTier) -> None:
        self._settings, self._seals, self._tier = settings, seals, tier
        self.ledger: ForgettingLedger | None = None  # of the last memory generation
        self._generation = 0  # the one that the ledger describes
        self._table: SealTable | None = None  # the ledger's content for the next scheduler
        self._left: tuple[SealTable, ForgettingLedger] | None = None  # of the last scheduler, adopted in advance
        self.is_suspect = False  # the next gang must take new memory
        self._has_left = True  # an earlier scheduler may have left pages that no ledger here knows yet
        self._roots, self._shares = RootScopes(), CacheShares()
        self._bounds = ScopeBounds(self._shares, self._roots.scope_of, self._scope_of)
        self._plans = AppliedPlans()

    @property
    def known_generation(self) -> int:
        """The memory generation that the ledger describes; 0 if there is no ledger."""
        return self._generation if self.ledger is not None else 0

    @property
    def _tiers(self) -> tuple[HostLedger, HostLedger]:
        """What is in the host tier and on the disk."""
        return self._tier.contents, self._tier.disk.contents.ledger

    def prepare(self) -> None:
        """Adopt in advance what the last scheduler has left."""
        self._tier.prepare()
        if self.ledger is None and self._left is None and (table := self._seals.left()) is not None:
            self._left = table, self._ledger_of(table.n_pages, table)

    def keeps(self, generation: int, n_pages: int) -> bool:
        """True if the ledger describes this memory."""
        return self.ledger is not None and (self._generation, self.ledger.n_pages) == (generation, n_pages)

    def begin(self, generation: int, n_pages: int, n_least: int = 0) -> ForgettingLedger:
        """The ledger of the memory of a gang that begins: the present one, one that has adopted pages, or an empty one.
        n_least: pages in use at the least, if their number follows the load."""
        is_new = self.ledger is None or not self.keeps(generation, n_pages)
        if self.ledger is None or is_new:
            left, self._left = self._left, None
            if left is not None and (left[0].generation, left[0].n_pages) == (generation, n_pages):
                self._table, self.ledger = left
            else:
                self._table = self._seals.open(generation, n_pages)
                self.ledger = self._ledger_of(n_pages, self._table)
            self._generation = generation
        if isinstance(self.ledger, SizedLedger):
            self.ledger.begin(n_least, is_new)
        self.is_suspect = self._has_left = False
        return self.ledger

    def note_caller(self, sequence: Sequence) -> None:
        """A sequence has come: note whose pages it caches, and how many its caller may have."""
        terms = sequence.terms
        if sequence.root:
            self._roots.note(sequence.root, terms.cache_scope)
            for tier in self._tiers:
                tier.root_noted(sequence.root)
        if terms.cache_scope and (terms.cache_share < 1.0 or self._shares):
            self._shares.note(terms.cache_scope, terms.cache_share)
            if self._shares:
                self._bound_caches()

    def forget(self, wanted: Forgetting) -> int | None:
        """Forget the pages that are wanted, and all of the host tier; returns how many of the device. None while pages of an
        earlier scheduler may still be adopted."""
        self._tier.forget()
        if self.ledger is not None:
            return self.ledger.forget(wanted, self._roots)
        return None if self._has_left else 0

    def note_open(self, advances: Advances) -> None:
        """Record how far the last pages of the sequences are filled that have new tokens."""
        if self._table is not None:
            record_open_pages(self._table, advances)

    def plan_sent(self, step: int) -> None:
        """A plan that begins with this step has been sent."""
        self._plans.sent(step)

    def plan_ended(self, step: int) -> None:
        """All results of the plan that begins with this step have been applied."""
        n_applied = self._plans.ended(step)
        if self.ledger is not None:
            for _ in range(n_applied):
                self.ledger.apply_plan()

    def release(self, pages: list[int]) -> None:
        """One holder of each of these pages gives it back."""
        if self.ledger is not None:
            self.ledger.release(pages)

    def drop_unapplied(self) -> set[int]:
        """The plans and moves in flight are lost: forget what they would have written. Returns these pages."""
        self._tier.end_epoch()
        self._plans.clear()
        return self.ledger.drop_unapplied() if self.ledger is not None else set()

    def drop(self) -> None:
        """The memory has lost its content."""
        self._tier.clear()
        self.ledger, self._has_left = None, False
        tables = [self._table, self._left[0] if self._left is not None else None]
        self._left = None
        for table in tables:
            if table is not None:
                table.clear()

    def _bound_caches(self) -> None:
        """Some callers may take a part of each cache only: that of the device, and those of the tiers."""
        if self.ledger is not None:
            self.ledger.bound_caches(self._shares, self._roots)
        for tier in self._tiers:
            tier.bound(self._bounds)

    def _scope_of(self, content_hash: int) -> bytes:
        """Whose content this is, as far as some cache knows it; b"": none does."""
        scope = b"" if self.ledger is None else self.ledger.scope_of(content_hash)
        return scope or next(filter(None, (tier.scope_of(content_hash) for tier in self._tiers)), b"")

    def _ledger_of(self, n_pages: int, table: SealTable | None) -> ForgettingLedger:
        settings, eviction = self._settings, make_eviction(self._settings.eviction, n_pages)
        if settings.follows_load:
            rule = SizingRule(settings.kv_quiet_s, settings.kv_spare_share)
            ledger: ForgettingLedger = SizedLedger(n_pages, eviction, table, rule)
        else:
            ledger = ForgettingLedger(n_pages, eviction, table)
        ledger.adopt()
        return ledger
