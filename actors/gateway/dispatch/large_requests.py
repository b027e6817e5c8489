"""Requests of many sequences, which are submitted in several turns of the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from actors.gateway.dispatch.post import Post
from actors.gateway.requests.request import GrowingSequence, Request

SEQUENCES_A_TURN = 256  # submitted in one turn of the event loop, which takes a few milliseconds


class LargeRequests:
    """What later turns submit. `place` submits sequences of one prompt."""

    def __init__(self, post: Post, place: Callable[[Sequence[GrowingSequence]], None]) -> None:
        self._post, self._place = post, place
        self._left: dict[int, list[GrowingSequence]] = {}  # by number of a request

    def submit(self, request: Request) -> None:
        """Submit every sequence that has not ended; those of one prompt go to the same replica."""
        self._submit_from(request, 0)

    def left(self) -> list[GrowingSequence]:
        """The sequences whose turn has not come yet."""
        return [one for sequences in self._left.values() for one in sequences if one.ended is None]

    def _submit_from(self, request: Request, first: int) -> None:
        """Submit the sequences with the indexes `first`, `first` + 1, ...: some of them now, the others in later turns."""
        n, n_sequences = request.spec.n, len(request.sequences)
        end = min(first + max(SEQUENCES_A_TURN // n, 1) * n, n_sequences)
        for start in range(first, end, n):
            self._place([s for s in request.sequences[start : start + n] if s.ended is None])
        if end < n_sequences:
            self._left[request.number] = request.sequences[end:]
            self._post.later(0.0, partial(self._submit_from, request, end))
        elif first:
            del self._left[request.number]
