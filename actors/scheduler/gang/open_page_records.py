"""Records after each step how far the last page of each sequence is filled, so that the next scheduler need not fill it again.

The result of a step says which positions are computed: all but the last one of the tokens that are known with it.
"""

from __future__ import annotations

import numpy as np

from actors.pages.seal_table import SealTable
from actors.scheduler.planning.rows.advance import Advances
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS


def record_open_pages(table: SealTable, advances: Advances) -> None:
    """Note the new tokens of one step in `table`."""
    if (together := advances.together) is not None:
        _record_all(table, together.rows.batch.sequences, together.n_computed.astype(np.int64), together.ids)
    others = [advance for advance in advances.others if advance.ids]
    if others:
        sequences = [advance.row.sequence for advance in others]
        n_computed = np.array([sequence.known - 1 for sequence in sequences], np.int64)
        _record_all(table, sequences, n_computed, np.array([advance.ids[-1] for advance in others], np.int32))


def _record_all(table: SealTable, sequences: list[Sequence], n_computed: np.ndarray, newest: np.ndarray) -> None:
    """These sequences have so many positions computed, and these newest tokens: [n] int64 and int32. Most records go on by one
    token, which arrays do for all sequences at once."""
    indices = ((n_computed - 1) // PAGE_TOKENS).tolist()
    pages = np.array([sequence.pages[index] for sequence, index in zip(sequences, indices, strict=True)], np.int64)
    n_tokens = n_computed % PAGE_TOKENS
    is_noted = table.extend_open(pages, n_tokens, newest)
    for index in np.flatnonzero(~is_noted & (n_tokens > 0)).tolist():
        _record(table, sequences[index], int(pages[index]), int(n_computed[index]))


def _record(table: SealTable, sequence: Sequence, page: int, n_computed: int) -> None:
    n_full, n_tokens = divmod(n_computed, PAGE_TOKENS)
    parent = sequence.known_hash(n_full - 1) if n_full else sequence.root
    tokens = sequence.ids[n_full * PAGE_TOKENS : n_computed + 1]  # with the one that the next step computes
    table.record_open(page, n_tokens, parent, tokens.tobytes())
