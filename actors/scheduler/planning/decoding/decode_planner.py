"""Plans the rows of all sequences that decode together, where each gets one token and none needs anything else. Pure.

Plans in which a sequence has drafts or a grammar, finds no page, or may not run, are made row by row (`BatchPlanner`). Both
ways give the same plan.
"""

from __future__ import annotations

import numpy as np

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.decoding.page_seals import PageSeals
from actors.scheduler.planning.entering.page_supply import PageSupply
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.planning.rows.decode_batch import N_FACTS, BatchRows, DecodeBatch, facts_of
from actors.scheduler.sequences.permission import MayRun, permits_all
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS, EngineCapacity


class DecodePlanner:
    """Plans the batches of one gang. `least_rows`: fewer take less time one by one."""

    least_rows = 32

    def __init__(
        self,
        capacity: EngineCapacity,
        queues: SequenceQueues,
        ledger: ForgettingLedger,
        supply: PageSupply,
        seals: PageSeals,
    ) -> None:
        self._most_tokens = capacity.max_step_tokens
        self._queues, self._ledger, self._supply, self._seals = queues, ledger, supply, seals
        self._facts = np.zeros((capacity.n_slots, N_FACTS), np.int64)  # by slot, of the sequences that have been in a batch
        self._last: BatchRows | None = None  # of the last plan; None if it was made in the other way
        self._offered: list[Sequence] = []  # from which they were chosen
        self._n_moves, self._n_steps = 0, 1  # of the queues, when the last plan was made; that it has granted

    @property
    def unchanged(self) -> list[Sequence]:
        """The sequences of the last batch, if all that run were in it and are in their slots: they all decode. Else none."""
        last, queues = self._last, self._queues
        is_same = last is not None and queues.n_moves == self._n_moves and len(last) == len(queues.running)
        return last.batch.sequences if last is not None and is_same else []

    def granted(self, n_steps: int) -> None:
        """The plan that is being made grants so many steps."""
        self._n_steps = n_steps

    def plan(self, builder: PlanBuilder, decoding: list[Sequence], may_run: MayRun, is_drafting: bool) -> bool:
        """Add the rows of the `decoding` sequences that may still sample, all together. False if some of them may need more
        than a row of one token and a page: then nothing has changed."""
        last, self._last = self._last, None
        if len(decoding) < self.least_rows or builder.n_rows or builder.n_preempted or not permits_all(may_run):
            return False
        rows = self._rows_of(decoding, last)
        if rows is None:
            return False
        batch = rows.batch
        if not batch.is_plain or (is_drafting and batch.wants_drafts) or not 0 < len(rows) <= self._most_tokens:
            return False
        short = self._short_of_pages(rows)
        if len(short) > self._ledger.n_available:
            return False
        self._advance(builder, rows, short)
        builder.batch, self._last, self._n_moves = rows, rows, self._queues.n_moves
        builder.n_tokens = len(rows)
        return True

    def _rows_of(self, decoding: list[Sequence], last: BatchRows | None) -> BatchRows | None:
        """The rows of those that may still sample; None if one must be planned alone. Most plans have the batch of the plan
        before them."""
        if last is not None and (decoding is last.batch.sequences or self._are_those_of(last, decoding)):
            batch, starts = last.batch, last.starts + self._n_steps
        else:
            batch = self._batch_of(decoding)
            if batch is None:
                return None
            starts = np.array([s.planned for s in decoding], np.int32)
        self._offered = decoding
        is_open = starts + 1 < batch.limits
        rows = BatchRows(batch, starts)
        return rows if is_open.all() else rows.only(is_open)

    def _are_those_of(self, last: BatchRows, decoding: list[Sequence]) -> bool:
        return last.batch.is_here and decoding in (self._offered, last.batch.sequences)

    def _batch_of(self, decoding: list[Sequence]) -> DecodeBatch | None:
        """These sequences as a batch; None if drafts of one are being verified, or if the first token of one may come."""
        if any(s.is_verifying for s in decoding):
            return None
        new = [s for s in decoding if s.decode_stay != s.stay]
        if not all(s.in_flight or s.n_generated > s.n_before for s in new):
            return None
        for sequence in new:
            self._facts[sequence.slot] = facts_of(sequence)
            sequence.decode_stay = sequence.stay
        slots = np.array([s.slot for s in decoding], np.int32)
        return DecodeBatch(decoding, [s.stay for s in decoding], slots, self._facts[slots])

    def _short_of_pages(self, rows: BatchRows) -> list[int]:
        """The places of the rows that begin a page which their sequence does not have."""
        starts, sequences = rows.starts, rows.batch.sequences
        first_of_page = np.flatnonzero(starts & (PAGE_TOKENS - 1) == 0)  # with `%` in ten times the time
        begun = zip(first_of_page.tolist(), starts[first_of_page].tolist(), strict=True)
        return [at for at, start in begun if start >= len(sequences[at].pages) * PAGE_TOKENS]

    def _advance(self, builder: PlanBuilder, rows: BatchRows, short: list[int]) -> None:
        """Count the rows as planned; take the pages that they are short of, and seal those that have become full."""
        sequences = rows.batch.sequences
        for s in sequences:
            s.planned += 1
            s.in_flight += 1
        full = [at for at, s in enumerate(sequences) if s.known - s.n_sealed * PAGE_TOKENS >= PAGE_TOKENS]
        is_short, is_full = set(short), set(full)
        for at in sorted(is_short | is_full):  # in the order of the rows, as the ledger hears of all pages
            sequence = sequences[at]
            if at in is_short:
                taken = self._supply.take(builder, sequence, sequence.planned)
                assert taken, "the available pages were counted"
            if at in is_full:
                self._seals.seal_known(sequence, is_planned=True)
