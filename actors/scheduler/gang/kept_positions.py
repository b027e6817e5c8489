"""Which positions of a running sequence still have their keys and values when the steps in flight are lost. Pure.

A row in flight may have written any of its positions, or none; the same holds for the tokens that its plan copies. So a
sequence loses all positions from the first one of its oldest row in flight on, or of what is copied before it, and the next
gang writes them again before it reads them. The positions before that were written by its own rows, whose results have been
applied, or they lie in pages that it shares with the sequence that computes them. These are lost if a plan in flight completes
them.
"""

from __future__ import annotations

from collections.abc import Collection

from actors.scheduler.planning.rows.row import RowEnd
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS


def first_lost_positions(in_flight: list[RowEnd]) -> dict[int, int]:
    """By sequence number: the first position of its oldest row in flight, or of the tokens that its plan copies before it.

    in_flight: every row in flight, the oldest first. Rows of an earlier stay in a slot do not count, because they wrote to
    pages that the sequence has given back."""
    first: dict[int, int] = {}
    for row, end in in_flight:
        if row.stay == row.sequence.stay:
            first.setdefault(row.sequence.number, end - row.count - row.n_copied)
    return first


def n_kept(sequence: Sequence, first_lost: int | None, lost_pages: Collection[int]) -> int:
    """The number n of leading positions [0, n) of a running sequence whose keys and values are kept, and which need not be
    computed again for anything else.

    first_lost: its entry of `first_lost_positions`; None: it has no row in flight.
    lost_pages: those that plans in flight have sealed. (A plan may seal a page of its own sequence later than it is full.)
    """
    for index, page in enumerate(sequence.pages[: sequence.n_shared]):
        if page in lost_pages:
            return min(index * PAGE_TOKENS, sequence.n_reusable)
    return min(sequence.planned if first_lost is None else first_lost, sequence.n_reusable)
