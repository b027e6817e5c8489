"""Pages that the device has evicted and that lie in the host tier: when they are stored there, and when they come back. Pure.

A page is stored when the ledger evicts it, by moves that the ranks get before the plan that may overwrite it. A sequence
whose next pages lie in the tier waits while a *load* brings them back, if that is expected to be faster than to compute them.
They are ordinary cached pages then: the sequence looks for its prefix again. It waits for one load in each stay, and each piece
of a load has a deadline, so nothing waits for ever.

A load holds the pages before its own, which it continues. Its own pages have no content until every rank has answered. A load
that is given up gives its pages back at once: a rank that carries it out late does so before any plan that is sent later.
What lies in these pages before is stored with the piece that overwrites them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.host_ledger import HostLedger
from actors.pages.page_ledger import EvictedPage
from actors.pages.seal_table import SealTables
from actors.pages.sizing.sized_host_ledger import SizedHostLedger
from actors.pages.tier_loads import TierLoads
from actors.scheduler.disk_contents import DiskContents
from actors.scheduler.planning.disk_tier import DiskTier
from actors.scheduler.planning.exchange.page_exchange import PageExchange
from actors.scheduler.planning.load_cost import LoadCost
from actors.scheduler.planning.page_loads import PageLoad, PageLoads
from actors.scheduler.planning.pending_stores import PendingStores, Store
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.planning.tiers.evicted_pages import EvictedPages
from actors.scheduler.planning.tiers.host_contents import HostContents
from actors.scheduler.planning.tiers.host_sizing import HostSizing
from actors.scheduler.planning.tiers.page_order import beside_each_other
from actors.scheduler.planning.tiers.runs_ahead import RunsAhead
from actors.scheduler.planning.tiers.stores_ahead import StoresAhead
from actors.scheduler.planning.tiers.tier_counts import TierCounts
from actors.scheduler.planning.tiers.tier_messages import load_message, stores_message
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from messages.caches.moves import Moves
from messages.caches.page_moves import MOST_MOVED, MovePages, PagesMoved
from messages.steps import EngineCapacity


class HostTier:
    """The host tier of one gang after the other. cost: what steps of the gang cost. seals: where the tables of places outlive
    the scheduler. is_paused: True while no sequence may wait for a load. now_s: the monotonic clock."""

    def __init__(
        self,
        queues: SequenceQueues,
        settings: SchedulerSettings,
        cost: StepCost,
        seals: SealTables,
        is_paused: Callable[[], bool] = lambda: False,
        now_s: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._queues, self._choice, self._cost = queues, settings.tier_loads, cost
        self._is_paused, self._now_s = is_paused, now_s
        self._ledger: ForgettingLedger | None = None  # of the present epoch
        self._contents = HostContents(seals.places, settings, now_s)
        self._epoch, self._number = 0, 0
        self._load_cost, self._stores = LoadCost(lambda: cost.decode_s(len(queues.running))), PendingStores()
        self._evictions, self.sizing = EvictedPages(self._stores), HostSizing(self._contents, self._stores)
        self._loads = PageLoads(settings.tp, self._load_cost, lambda: self._now_s())
        self.ahead = RunsAhead(queues, self._loads, self._load_cost, is_paused)
        self.counts = TierCounts()
        self._stores_ahead = StoresAhead(settings.tp, lambda: self._load_cost.page_s, lambda: self._now_s())
        self.exchange = PageExchange(settings.tp, self._choice, cost, lambda: len(queues.running), now_s)
        contents = DiskContents(settings.tp, seals.disk_places, now_s)
        self.disk = DiskTier(settings.tp, self._choice, cost, contents, lambda places: self._stores.take_of([], places), now_s)

    @property
    def n_places(self) -> int:
        """Pages that it can hold; 0: there is no tier."""
        return self.contents.n_places

    @property
    def contents(self) -> HostLedger:
        """What it holds, as far as the scheduler knows."""
        return self._contents.ledger

    @property
    def held(self) -> list[list[int]]:
        """The pages that loads hold."""
        return [*([*load.before, *load.pages] for load in self._loads), *self.exchange.held]

    # -- epochs -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Adopt in advance what the last scheduler has left."""
        self.disk.contents.prepare()
        self._contents.prepare()

    def begin_epoch(self, epoch: int, ledger: ForgettingLedger, capacity: EngineCapacity, generation: int) -> None:
        """Plans of this epoch follow. generation: of the memory of the ranks. In the same one contents of the host tier stay
        known. A rank that has lost some all the same fails to load them."""
        n_places, self._load_cost.is_beside = capacity.n_host_pages, capacity.moves_beside_steps
        self._epoch, self._ledger = epoch, ledger
        self._contents.begin(generation, n_places, capacity.n_least_host_pages)
        self._evictions.clear()
        ledger.on_evicted = self._evicted if n_places else None
        self.disk.begin_epoch(epoch, self.contents, capacity.n_disk_pages if n_places else 0)
        self.exchange.begin_epoch(epoch, ledger, capacity.n_exchange_pages)

    def end_epoch(self) -> None:
        """Moves that have not been answered may never be done."""
        for load in self._loads:
            self._end(load)
        for store in self._stores.take_except(()):
            self.contents.discard(store.content_hash)
        self._stores_ahead.clear()
        self._ledger = None  # no rank may be there to copy anything
        self.disk.end_epoch()
        self.exchange.end_epoch()

    def forget(self) -> None:
        """Caches are reset: forget all contents, also those that are on their way from elsewhere."""
        self.clear()
        self.exchange.borrower.rest()

    def clear(self) -> None:
        """Forget all contents, also those that are on their way."""
        for load in self._loads:
            load.n_good = 0
            self._end(load)
        self._stores.take_except(())
        self._stores_ahead.clear()
        self.disk.clear()
        self._contents.clear()
        self.exchange.clear()

    # -- what the planner asks ----------------------------------------------------------------------------------

    def must_wait(self, sequence: Sequence, shared: list[int], n_pages: int) -> bool:
        """True if a sequence should wait for pages that come back. shared: the pages of its prefix that the device has, fewer
        than `n_pages`, the most that it could share. May begin a load, which evicts cached pages."""
        if self._is_paused():
            return False
        if self.n_places and self._must_wait_here(sequence, shared, n_pages):
            return True
        return self.exchange.must_wait(sequence, shared, n_pages)

    def _must_wait_here(self, sequence: Sequence, shared: list[int], n_pages: int) -> bool:
        """As `must_wait`, for pages of the host tier and of the disk."""
        if self._loads.is_waiting(sequence.number):
            return True
        if sequence.loaded_stay == sequence.stay or self._loads.is_early:
            return False
        if isinstance(self.contents, SizedHostLedger):
            self.contents.missed(sequence.page_contents(n_pages, len(shared)))
        if self.disk.must_wait(sequence, len(shared), n_pages, self._load_cost.page_s or 0.0):
            return True
        arriving = self._loads.arriving(sequence.page_content(len(shared))[0])
        load = arriving or self._begin(sequence, shared, n_pages)
        if load is None:
            return False
        sequence.loaded_stay = sequence.stay
        self._loads.wait(sequence.number, load)
        return True

    def _begin(self, sequence: Sequence, shared: list[int], n_pages: int) -> PageLoad | None:
        wanted = sequence.page_contents(n_pages, len(shared))
        contents, places = self.contents.first_of(wanted, self._loads.has_arriving)
        ledger = self._ledger
        if ledger is None or not contents or self._loads.is_full or not self._is_faster(len(shared), len(contents)):
            return None
        ledger.acquire(shared)
        needed = sequence.pages_short(sequence.known) - len(shared)  # of which the load takes a part
        if needed + len(self._queues.running) > ledger.n_available:
            ledger.release(shared)
            return None
        self.contents.pin(contents)
        pages = ledger.allocate_all(len(contents))
        load = PageLoad(contents, beside_each_other(pages, places), list(shared), sequence.number, places)
        self._loads.begin(load)
        self.disk.note_used(*contents)
        return load

    def _is_faster(self, n_before: int, n_pages: int) -> bool:
        """True if these pages, after `n_before` others, are loaded sooner than computed, or nothing is known."""
        if self._choice is TierLoads.ALWAYS or not self._cost.is_known:
            return True
        return self._load_cost.is_below(n_pages, self._cost.pages_s(n_before, n_pages))

    # -- moves ------------------------------------------------------------------------------------------------------

    def _evicted(self, evicted: list[EvictedPage]) -> None:
        """The ledger has evicted pages: store them before a plan overwrites them."""
        self._evictions.add(self.contents, evicted, can_store=not self._loads.is_early)
        if self.disk.n_places:
            self.disk.note_used(*(content for _, content in evicted))

    def settle(self) -> None:
        """Give the pages of loads that have come to the ledger. To be called before waiting sequences look for their prefixes,
        and when tokens have been sent, which do not wait for this."""
        for load in list(self._loads.come):
            self._end(load)

    def take_sent(self) -> bool:
        """True if a load was sent to its end since the last call, so that its sequence may enter ahead of it."""
        return self._loads.take_sent()

    def is_to_be_stored(self, page: int) -> bool:
        """True if moves that are not taken yet copy this page."""
        return page in self._stores

    def take_moves(self, planned: PlannedStep | None) -> list[Moves]:
        """What every rank is to do before this plan, in order. None: no plan can be made now."""
        stores = self._take_stores(planned) if self._stores else []
        piece = self._loads.next_piece(self._number + 1, self._stores.__contains__)
        places: list[int] = []
        if piece is not None:
            self._number += 1
            places = piece.places
            stores += self._stores.take_of(piece.pages, places)
        self.counts.stored += len(stores)
        moves = [self._stored(stores[at : at + MOST_MOVED]) for at in range(0, len(stores), MOST_MOVED)]
        loads = [load_message(self._epoch, piece, places)] if piece is not None else []
        return [*moves, *loads, *self.disk.take_moves(), *self._take_exchanges()]

    def take_stores_ahead(self) -> list[MovePages]:
        """Copies of pages that are evicted soon, once all moves are taken, and while nobody waits for moves."""
        self._evictions.note_used(self.contents)
        if not self._load_cost.is_beside or self._ledger is None or self._stores or self._loads.is_busy:
            return []
        stores = self._stores_ahead.take(self._ledger, self.contents)
        if not stores:
            return []
        for store in stores:
            self._stores.add(store)  # nothing else is stored at these places
        self.counts.stored += len(stores)
        message = self._stored(self._stores.take_except(()))
        self._stores_ahead.sent(message.number)
        return [message]

    def _take_exchanges(self) -> list[Moves]:
        """Moves to and from other replicas. What lies in the pages that they overwrite is stored before."""
        moves: list[Moves] = []
        for exchanged in self.exchange.take_moves(self._stores.__contains__):
            stores = self._stores.take_of(exchanged.loaded_pages.tolist(), [])
            self.counts.stored += len(stores)
            moves += [*([self._stored(stores)] if stores else []), exchanged]
        return moves

    def _take_stores(self, planned: PlannedStep | None) -> list[Store]:
        """Those of pages that the plan overwrites; others as far as there is time. Pages of loads are overwritten by moves."""
        most, targets = self._load_cost.most_pages, self._loads.targets
        written = planned.written_pages() if planned is not None and len(self._stores) > most else []
        stores = self._stores.take_of(written, [])
        return stores + self._stores.take_except(targets, max(most - len(stores), 0))

    def _stored(self, stores: list[Store]) -> MovePages:
        self._number += 1
        return stores_message(self._epoch, self._number, stores)

    def moved(self, rank: str, answer: PagesMoved) -> None:
        """A rank has done the moves of one message of this epoch."""
        self._stores_ahead.moved(rank, answer.number)
        piece = self._loads.moved(rank, answer)
        if piece is None:
            return
        load, n_good, n_before = piece.load, piece.load.n_good - piece.first, len(piece.load.before) + piece.first
        self.counts.failed += 0 if piece.is_early else len(piece.failed)
        self.counts.add_loads(n_good, piece.took_s, self._cost.pages_s(n_before, n_good))
        if not piece.failed:  # a page that is not there takes no time
            self._load_cost.learn(piece.end - piece.first, piece.took_s)
        if piece.failed:
            self._end(load)
        elif load.is_whole:  # results that wait for it go on; `settle` does the rest
            self.ahead.end(load, self._ledger)
        for index in piece.failed if not piece.is_early else ():
            self.contents.discard(piece.contents[index][0])

    def give_up_late(self) -> int:
        """End all loads if an answer is overdue: their sequences compute. Returns how many."""
        late = list(self._loads) if self._loads.is_late else []
        for load in late:
            self._end(load)
        return len(late) + self.disk.give_up_late()

    def _end(self, load: PageLoad) -> None:
        """The first pages of a load have their content, the others have none."""
        self._loads.end(load)
        self.contents.unpin(load.contents)
        self.ahead.end(load, self._ledger)
        if self._ledger is not None:
            load.give_to(self._ledger)
