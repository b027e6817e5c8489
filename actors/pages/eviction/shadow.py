"""What a policy would have found: a small imaginary cache that the policy keeps alone."""

from __future__ import annotations

from actors.pages.chain_root import ROOT
from actors.pages.eviction.policy import EvictionPolicy

_FEWEST_PAGES = 512  # of a shadow, where the cache itself has so many: then hit rates are right to one or two percent
_MOST_SAMPLING_BITS = 6
_HASH_BITS = 64


class Sample:
    """Which requests a shadow sees: those for a share of all contents, chosen by the first bits of their hashes."""

    def __init__(self, n_pages: int) -> None:
        bits = min(max((n_pages // _FEWEST_PAGES).bit_length() - 1, 0), _MOST_SAMPLING_BITS)
        self._shift = _HASH_BITS - bits
        self.each = 1 << bits  # contents for each one that is seen
        self.n_pages = max(n_pages >> bits, 1)  # of a shadow

    def has(self, content_hash: int) -> bool:
        """True if shadows see requests for this content."""
        return not content_hash >> self._shift


class ShadowCache:
    """A cache of `n_pages` imaginary pages. It sees a sample of all requests, so its hits tell those of a cache that is larger
    in the same proportion ("miniature simulations", Waldspurger et al., Cache modeling and optimization using miniature
    simulations, 2017). In its tree of prefixes a page continues the last page before it that is in the sample."""

    def __init__(self, policy: EvictionPolicy, n_pages: int) -> None:
        self._policy = policy
        self._free = list(range(n_pages))
        self._page_of: dict[int, int] = {}  # by content hash
        self._hash_of: dict[int, int] = {}
        self.hits = 0

    def request(self, content_hash: int, above: int) -> None:
        """A content is reused or computed. above: the content that it continues, or ROOT."""
        policy, page = self._policy, self._page_of.get(content_hash)
        if page is not None:
            self.hits += 1
            policy.remove([page])
            policy.use([page])
        else:
            page = self._free.pop() if self._free else self._overwrite()
            self._page_of[content_hash], self._hash_of[page] = page, content_hash
            policy.learn(page, content_hash, above)
        policy.add([page])

    def _overwrite(self) -> int:
        page = self._policy.evict()
        self._policy.drop(page)
        del self._page_of[self._hash_of[page]]
        return page


class Contest:
    """Shadows of several policies that see the same requests, and their scores: hits, of which older ones count less."""

    def __init__(self, policies: list[EvictionPolicy], sample: Sample, period: int, kept: float) -> None:
        """period: requests between two decisions. kept: the share of each score that is left at the next decision."""
        self._sample, self._kept = sample, kept
        self._n_until_decision = self._period = max(period, 1)
        self._shadows = [ShadowCache(policy, sample.n_pages) for policy in policies]
        self._above: dict[int, int] = {}  # of each known content: the last content before it that is in the sample
        self._before = [0] * len(policies)
        self.scores = [0.0] * len(policies)

    def learn(self, content_hash: int, parent: int) -> bool:
        """A content is computed, and known until `forget`. True if it is time to decide: then the scores are new."""
        above = parent if self._sample.has(parent) else self._above.get(parent, ROOT)
        self._above[content_hash] = above
        return self._request(content_hash, above)

    def use(self, content_hash: int) -> bool:
        """A known content is reused. Returns as `learn`."""
        return self._request(content_hash, self._above.get(content_hash, ROOT))

    def forget(self, content_hash: int) -> None:
        """A content is not known any more."""
        self._above.pop(content_hash, None)

    def _request(self, content_hash: int, above: int) -> bool:
        if self._sample.has(content_hash):
            for shadow in self._shadows:
                shadow.request(content_hash, above)
        self._n_until_decision -= 1
        if self._n_until_decision:
            return False
        self._n_until_decision = self._period
        for place, shadow in enumerate(self._shadows):
            self.scores[place] = self._kept * self.scores[place] + shadow.hits - self._before[place]
            self._before[place] = shadow.hits
        return True

    @property
    def hits(self) -> list[int]:
        """An estimate of the pages that each policy would have found."""
        return [shadow.hits * self._sample.each for shadow in self._shadows]
