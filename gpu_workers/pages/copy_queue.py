"""The copies between a GPU's pages and places of the host that are on their way, and the plans that have to wait for them.

The host tier and the exchange with other replicas share one stream of copies, so their copies run in the order in which they
were queued. A page is *busy* from the moment its copy is queued: a plan that reads or writes it waits on the device, as a whole
or layer by layer. That is a plan which takes over a page whose content is being stored, or whose load was given up, or the plan
of a sequence that runs ahead of its load.
"""

from __future__ import annotations

import numpy as np

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.pages.copy_stream import Copies, CopyStream, PlaceCompressions, PlaceCopies
from gpu_workers.pages.plan_pages import pages_of
from messages.steps import Plan


class CopyQueue:
    """Of one rank with `n_pages` pages. Used on the step thread; only `end` is called on the thread that waits."""

    def __init__(self, stream: CopyStream, n_pages: int) -> None:
        self._stream = stream
        self._newest = np.zeros(n_pages, np.int64)  # number of the newest copies that use a page
        self._number = 0
        self.in_flight: dict[int, Copies] = {}  # by number

    def check(self, pages: np.ndarray) -> None:
        """Raises: ValueError for an unknown page."""
        check_numbers("pages", pages, len(self._newest))

    def queue(self, stored: PlaceCopies, loaded: PlaceCopies) -> tuple[int, Copies]:
        """Queue copies of pages to places, and then of places to pages. Returns the number with which they end."""
        number, copies = self._note(self._stream.queue(stored, loaded))
        self._newest[stored.pages] = self._newest[loaded.pages] = number
        return number, copies

    def compress(self, places: PlaceCompressions) -> tuple[int, Copies]:
        """Queue compressions of what lies on the host. Returns as `queue`."""
        return self._note(self._stream.compress(places))

    def hold(self, plan: Plan, slots: SlotTable) -> bool:
        """Called before a plan is launched: it begins after the copies that use its pages. slots: with the plan applied.
        Returns True if it may begin at once, and each of its layers has to wait for that layer of a load."""
        self._stream.go_around(bool(self.in_flight))
        if not self.in_flight:
            return False
        number = int(self._newest[pages_of(plan, slots)].max(initial=0))
        copies = self.in_flight.get(number)  # those before it end earlier
        if copies is None:
            return False
        if copies.comes_by_layers and _is_one_prompt(plan):
            return True
        self._stream.hold_plans(copies)
        return False

    def _note(self, copies: Copies) -> tuple[int, Copies]:
        self._number += 1
        self.in_flight[self._number] = copies
        return self._number, copies

    def end(self, number: int) -> None:
        """The copies with this number have ended."""
        del self.in_flight[number]


def _is_one_prompt(plan: Plan) -> bool:
    """True for one step of several tokens of one sequence, which copies no page: others would wait with it. An urgent step
    waits for nothing once other steps wait for it, because copies may wait for these."""
    is_alone = len(plan.row_counts) == 1 and int(plan.row_counts[0]) > 1
    return is_alone and plan.n_steps == 1 and plan.copies is None and not plan.is_urgent


def check_numbers(name: str, numbers: np.ndarray, n: int) -> None:
    """Raises: ValueError for numbers of things that are not there."""
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
        raise ValueError(f"{name}: expected numbers from 0 to {n - 1}, got {numbers.min()} to {numbers.max()}")
