"""Which share of a cache is the window of W-TinyLFU.

It moves towards the better one of two shadows, one with a small window and one with a large one. The authors of W-TinyLFU let
the share climb while the hit rate rises (Einziger, Eytan, Friedman and Manes, Adaptive software cache management, 2018). The
hit rate of a server's requests changes more from one minute to the next than between two shares, so here both are compared on
the same requests.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.eviction.shadow import Contest, Sample

_SMALL, _LARGE = 0.05, 1.0  # a window that is the whole cache is LRU
_STEP = 0.1
_KEPT = 0.9  # of the scores, at each step
_MARGIN = 1.05  # a small window must be better by so much: where shadows err, LRU errs less


class WindowShare:
    """Must be told of every content. make: a policy for so many pages with a fixed share."""

    def __init__(self, make: Callable[[int, float], EvictionPolicy], n_pages: int) -> None:
        sample = Sample(n_pages)
        shadows = [make(sample.n_pages, share) for share in (_SMALL, _LARGE)]
        self._contest = Contest(shadows, sample, period=n_pages, kept=_KEPT)
        self.share = _LARGE

    def learn(self, content_hash: int, parent: int) -> None:
        """A content is computed, and known until `forget`. At times the share changes."""
        if self._contest.learn(content_hash, parent):
            self._decide()

    def use(self, content_hash: int) -> None:
        """A known content is reused. At times the share changes."""
        if self._contest.use(content_hash):
            self._decide()

    def forget(self, content_hash: int) -> None:
        """A content is not known any more."""
        self._contest.forget(content_hash)

    def _decide(self) -> None:
        small, large = self._contest.scores
        step = -_STEP if small > _MARGIN * large else _STEP
        self.share = min(max(self.share + step, _SMALL), _LARGE)
