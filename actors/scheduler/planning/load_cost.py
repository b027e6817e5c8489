"""What loads from the host tier, or reads from the disk, are expected to take, learnt from those that were measured. Pure."""

from __future__ import annotations

from collections.abc import Callable

from messages.caches.page_moves import MOST_MOVED

_PIECE_S = 0.005  # of moves before a plan
_STEP_SHARE = 0.25  # of a step that moves before it may take, where that is longer: a stream of slow steps notices it as little
_BESIDE_S = 0.05  # of moves beside steps, which keep nobody waiting but other loads
_FIRST_PAGES = 16  # of a piece, while nothing is known
_FIRST_BESIDE = 512
_DOWN, _UP = 0.5, 0.25  # of the error that is corrected; up is slower, because a pause of the machine lengthens loads
_DOUBT = 0.98  # by which the expected time falls with each load that was not worth it: it may have been one slow copy


class LoadCost:
    """`page_s`: the expected time for each page; None: nothing was measured. step_s: what a step of the running sequences is
    expected to take. `is_beside`: moves run beside the steps, so a piece may be long."""

    def __init__(self, step_s: Callable[[], float] = lambda: 0.0) -> None:
        self._step_s = step_s
        self.page_s: float | None = None
        self.is_beside = False

    @property
    def most_pages(self) -> int:
        """How many pages may be moved before the next plan."""
        if self.page_s is None:
            return _FIRST_BESIDE if self.is_beside else _FIRST_PAGES
        piece_s = _BESIDE_S if self.is_beside else max(_PIECE_S, _STEP_SHARE * self._step_s())
        is_long = self.page_s * MOST_MOVED > piece_s
        return max(1, round(piece_s / self.page_s)) if is_long else MOST_MOVED

    def is_below(self, n_pages: int, limit_s: float) -> bool:
        """True if a load of these pages takes less time, or nothing is known. If not, the next one is expected to take less."""
        if self.page_s is None or self.page_s * n_pages < limit_s:
            return True
        self.page_s *= _DOUBT
        return False

    def learn(self, n_pages: int, took_s: float) -> None:
        """So many pages were loaded in this time."""
        page_s = took_s / n_pages
        if self.page_s is None:
            self.page_s = page_s
        else:
            self.page_s += (page_s - self.page_s) * (_UP if page_s > self.page_s else _DOWN)
