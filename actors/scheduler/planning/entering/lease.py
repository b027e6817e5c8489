"""How many steps one plan grants: a lease of steps. Pure."""

from __future__ import annotations

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.entering.page_supply import PageSupply
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.sequences.queues import SequenceQueues


def grant_steps(
    builder: PlanBuilder, most_steps: int, queues: SequenceQueues, ledger: ForgettingLedger, supply: PageSupply
) -> int:
    """Steps that this plan grants: more than one only when all running sequences decode and none could enter meanwhile."""
    could_enter = len(queues.waiting) and queues.has_slot and not builder.n_held_up
    if most_steps == 1 or could_enter or builder.entered:
        return 1
    builder.unfold()
    if any(row.count != 1 or not row.samples for row in builder.rows) or len(builder.rows) != len(queues.running):
        return 1
    if any(row.sequence.terms.grammar is not None for row in builder.rows):
        return 1  # the host computes which tokens may follow the last one
    n_steps = 1 + min(most_steps - 1, *(row.sequence.n_samples_left for row in builder.rows))
    short = [max(row.sequence.pages_short(row.start + n_steps), 0) for row in builder.rows]
    if n_steps == 1 or sum(short) > ledger.n_available:
        return 1
    if any(n_pages and row.sequence.terms.page_share < 1.0 for row, n_pages in zip(builder.rows, short, strict=True)):
        return 1  # a lease preempts nobody
    for row in builder.rows:
        supply.take(builder, row.sequence, row.start + n_steps)
        row.sequence.planned += n_steps - 1
        row.sequence.in_flight += n_steps - 1
    return n_steps
