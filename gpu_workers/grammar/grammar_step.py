"""The rows of one step that have a grammar: which tokens each of their samples may be, and what follows once they are sampled.

step thread:    GrammarTable.step        the step is launched; on a GPU its samples wait for their masks
collector:      give                     once the tokens of the step before are known: the masks, while the layers run
                report                   the tokens of this step are known: what the grammars say of what comes next
                look_ahead               while the next plan is on its way: the masks of the next step, as far as they are known
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from gpu_workers.grammar.grammar_row import GrammarRow
from gpu_workers.grammar.mask_maker import MaskMaker
from gpu_workers.sampling.masked_logits import MaskedSamples
from messages.steps import GrammarFailure, GrammarReport, GrammarRest
from messages.wire.arrays import int32s

Room = Callable[[int, int], np.ndarray]  # memory for so many masks of so many words: [M, words] int32


class SamplePlaces(msgspec.Struct, frozen=True):
    """Where M samples with a grammar stand; as in `MaskedSamples`."""

    index: np.ndarray
    slots: np.ndarray
    positions: np.ndarray
    drafts: np.ndarray


def _new_room(n: int, n_words: int) -> np.ndarray:
    return np.empty((n, n_words), np.int32)


class GrammarStep:
    """One step's. The methods are called in the order above, each step after the one before it; `masks` by any thread."""

    def __init__(self, maker: MaskMaker, rows: Sequence[GrammarRow], places: SamplePlaces, before: GrammarStep | None) -> None:
        """before: the step with grammars before this one, whose tokens its masks depend on."""
        self._maker, self._rows, self._places, self._before = maker, rows, places, before
        self._told = threading.Event()
        self._promised: tuple[Room, Callable[[MaskedSamples], None]] | None = None

    @property
    def n_samples(self) -> int:
        """How many samples have a mask."""
        return len(self._places.index)

    @property
    def n_words(self) -> int:
        """The words of a mask."""
        return self._maker.n_words

    def masks(self, room: Room = _new_room) -> MaskedSamples:
        """The samples with their masks, in memory from `room`. Waits for grammars that are not compiled yet, and until the
        tokens before the step were reported."""
        if self._before is not None:
            self._before._told.wait()
            self._before = None
        self._maker.await_late(row.answer for row in self._rows)
        masks = room(self.n_samples, self.n_words)
        self._maker.write(self._rows, masks)
        places = self._places
        return MaskedSamples(places.index, places.slots, places.positions, places.drafts, masks)

    def promise(self, room: Room, deliver: Callable[[MaskedSamples], None]) -> None:
        """The device waits for the masks: `give` makes them in memory from `room` and delivers them."""
        self._promised = (room, deliver)

    def give(self) -> None:
        """Keep the promise, if there is one that was not kept."""
        if self._promised is not None:
            (room, deliver), self._promised = self._promised, None
            deliver(self.masks(room))

    def report(self, counts: np.ndarray, ids: np.ndarray) -> GrammarReport | None:
        """What follows from the step's tokens; None if nothing does.

        counts: [N] tokens that each row of the step has emitted; ids: these tokens, row by row. On the host.
        """
        starts, lengths, tokens = (np.cumsum(counts) - counts).tolist(), counts.tolist(), ids.tolist()
        forced: list[tuple[int, int, list[int]]] = []  # (slot, position, tokens)
        failures: list[GrammarFailure] = []
        rests: list[GrammarRest] = []
        with self._maker.lock:
            for row in self._rows:
                answer, first = row.answer, starts[row.index]
                if not answer.failure:
                    answer.sampled(tokens[first : first + lengths[row.index]])
                if reason := answer.failure:
                    failures.append(GrammarFailure(slot=row.slot, reason=reason))
                    continue
                if following := answer.forced():
                    forced.append((row.slot, answer.n_known, following))
                if wait_s := answer.look_ahead(self._maker.threads, self._maker.n_columns, following):
                    rests.append(GrammarRest(slot=row.slot, wait_s=wait_s))
        self._told.set()
        if not forced and not failures and not rests:
            return None
        return GrammarReport(
            slots=int32s([slot for slot, _, _ in forced]),
            starts=int32s([position for _, position, _ in forced]),
            counts=int32s([len(following) for _, _, following in forced]),
            ids=int32s([token for _, _, following in forced for token in following]),
            failures=failures,
            rests=rests,
        )

    def look_ahead(self) -> None:
        """Compute the masks of the next step, as far as they are known."""
        self._maker.look_ahead([(row.slot, row.answer) for row in self._rows])
