"""Questions to the cache directory: which replicas hold the beginning of a prompt. An answer that is late is not waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.gateway.dispatch.post import Post, Timer, send_now
from actors.gateway.requests.request import GrowingSequence
from actors.gateway.settings import GatewaySettings
from actors.pages.chain_root import root_of
from actors.pages.page_hash import page_hashes
from messages.caches import prefixes

_WAIT_S = {"cuda": 0.005, "cpu": 0.05}  # by the device of the model
Found = Callable[[Sequence[GrowingSequence], dict[str, int]], None]


class PrefixQueries:
    """The open questions of one gateway, each about the sequences of one prompt, which wait for its answer."""

    def __init__(self, post: Post, settings: GatewaySettings, on_answer: Found) -> None:
        """`on_answer` is called with the sequences and, by scheduler, how many pages of their prompt its replica holds: no
        scheduler if the directory has not answered within `prefix_wait_s`.
        """
        self._post, self._on_answer = post, on_answer
        self._wait_s = settings.prefix_wait_s or _WAIT_S[settings.device]
        self._asked: dict[int, tuple[list[GrowingSequence], Timer]] = {}  # by number of the question
        self._next_query = 1

    def sequences(self) -> list[GrowingSequence]:
        """All sequences that wait for an answer."""
        return [sequence for sequences, _ in self._asked.values() for sequence in sequences]

    def ask(self, sequences: Sequence[GrowingSequence]) -> bool:
        """Ask about the sequences of one prompt. False if there is nothing to ask, or nobody to ask."""
        if not (directories := self._post.living("cache_directory")):
            return False
        terms = sequences[0].spec.terms
        hashes = page_hashes(sequences[0].all_tokens(), root_of(terms.cache_scope, terms.cache_salt))
        if not len(hashes):
            return False
        query, self._next_query = self._next_query, self._next_query + 1
        if not send_now(self._post, directories[0], prefixes.FindPrefix(query=query, hashes=hashes), terms.trace_id):
            return False
        timer = self._post.later(self._wait_s, lambda: self._close(query, {}))
        self._asked[query] = (list(sequences), timer)
        return True

    def answered(self, message: prefixes.PrefixFound) -> None:
        """The directory has answered."""
        self._close(message.query, {f"scheduler/{r}": n for r, n in zip(message.replicas, message.pages, strict=False)})

    def _close(self, query: int, pages_by_scheduler: dict[str, int]) -> None:
        asked = self._asked.pop(query, None)
        if asked is not None:
            sequences, timer = asked
            timer.cancel()
            self._on_answer(sequences, pages_by_scheduler)
