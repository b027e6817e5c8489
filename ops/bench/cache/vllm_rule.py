"""The rule by which vLLM overwrites blocks, for comparison.

It follows the behaviour of its block pool (vllm/v1/core/block_pool.py at commit 002f3491), and has none of its code. All blocks
without a holder wait in one queue, with or without known content. A block is taken from the front. A sequence gives its blocks
back from the last to the first, to the end of the queue; so its tail is overwritten before its beginning, and the page that it
has left partly filled waits like the others. Two blocks may have the same content.
"""

from __future__ import annotations

from collections import OrderedDict

from ops.bench.cache.replay import PageCache
from ops.bench.cache.trace_file import HashedRequest


class VllmRule(PageCache):
    """Reference counts, the queue, and an index of contents."""

    def __init__(self, n_pages: int) -> None:
        self._waiting: OrderedDict[int, None] = OrderedDict((page, None) for page in range(n_pages))
        self._holders = [0] * n_pages
        self._hash_of: dict[int, int] = {}
        self._pages_of: dict[int, dict[int, None]] = {}  # by content hash, the oldest first

    def enter(self, request: HashedRequest) -> tuple[list[int], int] | None:
        held: list[int] = []
        for content_hash, _, _ in request.contents[: request.prompt_pages]:
            pages = self._pages_of.get(content_hash)
            if pages is None:
                break
            held.append(next(iter(pages)))
        n_found, n_needed = len(held), len(request.contents) - len(held) + 1
        if n_needed > len(self._waiting) - sum(not self._holders[page] for page in held):
            return None
        for page in held:
            if not self._holders[page]:
                del self._waiting[page]
            self._holders[page] += 1
        for content_hash, _, _ in request.contents[n_found:]:
            page = self._take()
            self._hash_of[page] = content_hash
            self._pages_of.setdefault(content_hash, {})[page] = None
            held.append(page)
        return [*held, self._take()], n_found

    def leave(self, held: list[int]) -> None:
        for page in reversed(held):
            self._holders[page] -= 1
            if not self._holders[page]:
                self._waiting[page] = None

    def _take(self) -> int:
        page, _ = self._waiting.popitem(last=False)
        self._holders[page] = 1
        content_hash = self._hash_of.pop(page, None)
        if content_hash is not None:
            del self._pages_of[content_hash][page]
            if not self._pages_of[content_hash]:
                del self._pages_of[content_hash]
        return page
