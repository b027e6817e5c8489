"""Sequences that decode together, and their rows in one plan, as arrays. Pure.

From one plan to the next most sequences stay, each with one row of one token. So what does not change while a sequence is in
its slot is put into arrays once, and what a plan, a result or a message to a gateway needs of all of them comes from there.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from actors.scheduler.planning.rows.row import NO_DRAFTS, Row
from actors.scheduler.sequences.sequence import Sequence

_ATTEMPT, _N_PROMPT, _LIMIT, _N_CACHED, _IS_PLAIN, _IS_DRAFTED = range(6)  # columns of `facts`
N_FACTS = 6


def facts_of(sequence: Sequence) -> tuple[int, ...]:
    """What does not change while a sequence is in its slot: a row of `DecodeBatch.facts`."""
    terms = sequence.terms
    is_plain = terms.grammar is None and terms.group_tokens == 1 and terms.page_share >= 1.0
    n_prompt, n_cached = sequence.n_prompt, min(sequence.n_cached, sequence.n_prompt)
    return sequence.attempt, n_prompt, n_prompt + sequence.max_tokens, n_cached, is_plain, terms.speculation


class DecodeBatch:
    """Sequences in their slots, in the order of planning. It never changes."""

    def __init__(self, sequences: list[Sequence], stays: list[int], slots: np.ndarray, facts: np.ndarray) -> None:
        """stays: of the sequences. slots: [n] int32. facts: [n, N_FACTS] int64."""
        self.sequences, self.stays, self.slots, self._facts = sequences, stays, slots, facts

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def is_here(self) -> bool:
        """True while none has left its slot."""
        return [sequence.stay for sequence in self.sequences] == self.stays

    @cached_property
    def is_plain(self) -> bool:
        """True if none has a grammar, a budget of pages, or tokens that are told in groups."""
        return bool(self._facts[:, _IS_PLAIN].all())

    @cached_property
    def wants_drafts(self) -> bool:
        """True if speculation may have drafts for one of them."""
        return bool(self._facts[:, _IS_DRAFTED].any())

    @cached_property
    def attempts(self) -> np.ndarray:
        """[n] int64."""
        return np.ascontiguousarray(self._facts[:, _ATTEMPT])

    @cached_property
    def prompts(self) -> np.ndarray:
        """Tokens of the prompts, [n] int32."""
        return self._facts[:, _N_PROMPT].astype(np.int32)

    @cached_property
    def cached(self) -> np.ndarray:
        """Tokens of the prompts that needed no prefill, [n] int32."""
        return self._facts[:, _N_CACHED].astype(np.int32)

    @cached_property
    def limits(self) -> np.ndarray:
        """Tokens that each may have, with its prompt, [n] int32."""
        return self._facts[:, _LIMIT].astype(np.int32)

    @cached_property
    def stop_tokens(self) -> frozenset[int]:
        """The stop tokens of all of them."""
        return frozenset[int]().union(*{sequence.stop_tokens for sequence in self.sequences})

    @cached_property
    def places_of(self) -> dict[str, np.ndarray | slice]:
        """By gateway: where its sequences are."""
        gateways = [sequence.gateway for sequence in self.sequences]
        names = dict.fromkeys(gateways)
        if len(names) == 1:
            return dict.fromkeys(names, slice(None))
        array = np.array(gateways)
        return {name: np.flatnonzero(array == name) for name in names}

    def only(self, is_kept: np.ndarray) -> DecodeBatch:
        """Those of the sequences for which this is True: [n] bool."""
        places = np.flatnonzero(is_kept).tolist()
        sequences, stays = self.sequences, self.stays
        kept = ([sequences[at] for at in places], [stays[at] for at in places])
        return DecodeBatch(*kept, self.slots[is_kept], self._facts[is_kept])


class BatchRows:
    """The rows of a batch in one plan: one position of each sequence, `starts` [n] int32, after which a token is sampled."""

    def __init__(self, batch: DecodeBatch, starts: np.ndarray) -> None:
        self.batch, self.starts = batch, starts

    def only(self, is_kept: np.ndarray) -> BatchRows:
        """The rows for which this is True: [n] bool."""
        return BatchRows(self.batch.only(is_kept), self.starts[is_kept])

    def __len__(self) -> int:
        return len(self.batch.sequences)

    def row(self, at: int) -> Row:
        """The row at this place."""
        batch = self.batch
        return Row(batch.sequences[at], batch.stays[at], int(batch.slots[at]), int(self.starts[at]), 1, True, NO_DRAFTS)

    def rows(self) -> list[Row]:
        """All rows."""
        batch = self.batch
        places = zip(batch.sequences, batch.stays, batch.slots.tolist(), self.starts.tolist(), strict=True)
        return [Row(sequence, stay, slot, start, 1, True, NO_DRAFTS) for sequence, stay, slot, start in places]
