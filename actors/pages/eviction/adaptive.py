"""Several policies over the same pages, of which the one whose shadow finds most chooses what is evicted.

All of them are told of every page, so a change of the one that chooses costs nothing and moves nothing. Their opinions are
tested beside the cache: each policy has a shadow cache (`shadow.py`) that follows its choices alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.pages.eviction.policy import EvictionPolicy, PolicyFigures
from actors.pages.eviction.shadow import Contest, Sample

_KEPT = 0.5  # of the scores, at each decision: older periods count less and less
_MARGIN = 1.02  # another policy chooses when its score is better by so much


class AdaptiveEviction(EvictionPolicy):
    """Memory: the sum of its policies, and shadows of 512 to 1,023 pages each (of 1/64 of the pages in very large caches)."""

    def __init__(self, makers: Mapping[str, Callable[[int], EvictionPolicy]], n_pages: int) -> None:
        """makers: the policies, each made for a number of pages. The first one chooses at the beginning."""
        self._policies = {name: make(n_pages) for name, make in makers.items()}
        self._told = list(self._policies.values())
        sample = Sample(n_pages)
        self._contest = Contest([make(sample.n_pages) for make in makers.values()], sample, period=n_pages, kept=_KEPT)
        self._hash_of: dict[int, int] = {}  # the content of each known page
        self._n_hits, self._n_evictions = dict.fromkeys(makers, 0), dict.fromkeys(makers, 0)  # by the policy that chose
        self.chooser = next(iter(makers))
        self._chosen = self._policies[self.chooser]

    def __len__(self) -> int:
        return len(self._chosen)

    def __contains__(self, page: object) -> bool:
        return page in self._chosen

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        self._hash_of[page] = content_hash
        for policy in self._told:
            policy.learn(page, content_hash, parent)
        if self._contest.learn(content_hash, parent):
            self._decide()

    def add(self, pages: list[int]) -> None:
        for policy in self._told:
            policy.add(pages)

    def remove(self, pages: list[int]) -> None:
        for policy in self._told:
            policy.remove(pages)

    def use(self, pages: list[int]) -> None:
        self._n_hits[self.chooser] += len(pages)
        for policy in self._told:
            policy.use(pages)
        for page in reversed(pages):
            if self._contest.use(self._hash_of[page]):
                self._decide()

    def evict(self) -> int:
        page = self._chosen.evict()
        self._n_evictions[self.chooser] += 1
        if self._chosen.ghosts is not None:
            self._chosen.ghosts.evicted(self._hash_of[page])
        return page

    def hand_over(self, page: int, to: int) -> None:
        content_hash = self._hash_of[to] = self._hash_of[page]
        for policy in self._told:
            policy.hand_over(page, to)
            if policy.ghosts is not None:
                policy.ghosts.kept(content_hash)

    def drop(self, page: int) -> None:
        if (content_hash := self._hash_of.pop(page, None)) is not None:
            self._contest.forget(content_hash)
        for policy in self._told:
            policy.drop(page)

    def figures(self, hits: int, evictions: int) -> Mapping[str, PolicyFigures]:
        """The counts of each policy while it chose; its ghost hits are those of its own evictions."""
        found = {}
        for (name, policy), shadow_hits in zip(self._policies.items(), self._contest.hits, strict=True):
            own = policy.figures(self._n_hits[name], self._n_evictions[name])[name]
            found[name] = PolicyFigures(own.hits, own.evictions, own.ghost_hits, shadow_hits)
        return found

    def _decide(self) -> None:
        scores = dict(zip(self._policies, self._contest.scores, strict=True))
        best = max(scores, key=lambda name: scores[name])
        if scores[best] > _MARGIN * scores[self.chooser]:
            self.chooser, self._chosen = best, self._policies[best]
