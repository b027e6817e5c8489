"""How many steps one plan grants: a lease of steps. Pure."""

from __future__ import annotations

import numpy as np

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.entering.page_supply import PageSupply
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.planning.rows.decode_batch import BatchRows
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS


def grant_steps(
    builder: PlanBuilder, most_steps: int, queues: SequenceQueues, ledger: ForgettingLedger, supply: PageSupply
) -> int:
    """Steps that this plan grants: more than one only when all running sequences decode and none could enter meanwhile."""
    could_enter = len(queues.waiting) and queues.has_slot and not builder.n_held_up
    if most_steps == 1 or could_enter or builder.entered or builder.n_rows != len(queues.running):
        return 1
    if any(row.count != 1 or not row.samples for row in builder.rows):
        return 1
    if any(row.sequence.terms.grammar is not None for row in builder.rows):
        return 1  # the host computes which tokens may follow the last one
    n_steps = 1 + min(most_steps - 1, *_samples_left(builder))
    short = _short_of_pages(builder, n_steps)
    if n_steps == 1 or sum([n_pages for _, n_pages in short]) > ledger.n_available:
        return 1
    if any(sequence.terms.page_share < 1.0 for sequence, _ in short):
        return 1  # a lease preempts nobody
    for sequence, _ in short:
        supply.take(builder, sequence, sequence.planned + n_steps - 1)
    for sequence in builder.sequences:
        sequence.planned += n_steps - 1
        sequence.in_flight += n_steps - 1
    return n_steps


def _samples_left(builder: PlanBuilder) -> list[int]:
    """The fewest tokens that sequences of the batch, and each of the others, may still sample after this step."""
    left = [row.sequence.n_samples_left for row in builder.rows]
    if builder.batch is not None:
        left.append(int((builder.batch.batch.limits - builder.batch.starts).min()) - 2)
    return left


def _short_of_pages(builder: PlanBuilder, n_steps: int) -> list[tuple[Sequence, int]]:
    """The sequences that need more pages for so many steps, and how many, in the order of the rows."""
    asked = [] if builder.batch is None else _near_the_end(builder.batch, n_steps)
    asked += [row.sequence for row in builder.rows]
    short = [(sequence, sequence.pages_short(sequence.planned + n_steps - 1)) for sequence in asked]
    return [(sequence, n_pages) for sequence, n_pages in short if n_pages > 0]


def _near_the_end(rows: BatchRows, n_steps: int) -> list[Sequence]:
    """The sequences of a batch whose next `n_steps` positions are not all in one page."""
    places = np.flatnonzero((rows.starts & (PAGE_TOKENS - 1)) + n_steps > PAGE_TOKENS)
    return [rows.batch.sequences[at] for at in places.tolist()]
