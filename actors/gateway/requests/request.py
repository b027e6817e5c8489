"""One client request: n growing sequences, what of them is visible, and their endings. Pure: no mail, no await, no clock.

            accept (a step's tokens)                publish (recorded in the journal)
    taken --------------------------> n_known  >=  n_visible <------------------------- readers
            end  (stop, length, ...)  ended         is_end_visible

Laws: tokens are numbered from 0 and accepted without a gap or a repeat; `ended` is set once, and once more if the request
is withdrawn, of which nobody has seen anything; nothing is visible that is not recorded; a replay of the recorded tokens gives
the same text at the same token numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from actors.gateway.requests.order import Ended, Order
from actors.gateway.text.detokenizer import Detokenizer
from actors.gateway.text.stop_strings import StopStringFilter

KEY_BITS = 20  # sequences of one request in a journal key


class Gap(Exception):
    """Tokens came that do not follow the known ones."""


@dataclass(frozen=True)
class Logprobs:
    """Log-probabilities of some tokens: `chosen` is float32 [n], `top_ids` int32 and `top` float32 [n, width]."""

    chosen: np.ndarray
    top_ids: np.ndarray
    top: np.ndarray

    def part(self, start: int, stop: int) -> Logprobs:
        """Tokens start .. stop - 1."""
        return Logprobs(self.chosen[start:stop], self.top_ids[start:stop], self.top[start:stop])


def no_logprobs(width: int = 0) -> Logprobs:
    """Of no token."""
    return Logprobs(np.empty(0, "<f4"), np.empty((0, width), "<i4"), np.empty((0, width), "<f4"))


class GrowingSequence:
    """One sequence of a request."""

    __slots__ = (
        "_detokenizer",
        "_logprobs",
        "_stop_filter",
        "_stop_set",
        "attempt",
        "ended",
        "ids",
        "index",
        "is_end_visible",
        "is_taken",
        "last_visible_s",
        "n_cached",
        "n_losses",
        "n_submissions",
        "n_visible",
        "request",
        "scheduler",
        "tail",
        "texts",
    )

    def __init__(self, request: Request, index: int, detokenizer: Detokenizer) -> None:
        self.request, self.index = request, index
        self.ids: list[int] = []
        self.texts: list[str] = []  # texts[i]: what became safe to show with token i
        self.tail = ""  # what became safe to show with the ending
        self.n_cached = 0  # prompt tokens that needed no prefill when token 0 was computed
        self.n_visible = 0
        self.ended: Ended | None = None
        self.is_end_visible = False
        self.last_visible_s = 0.0  # when its newest tokens became visible, 0: none have
        self.attempt = 0  # the present submission, 0: none
        self.scheduler = ""
        self.is_taken = False
        self.n_submissions = 0
        self.n_losses = 0  # attempts lost since the last new token
        self._detokenizer = detokenizer
        self._stop_filter = StopStringFilter(request.order.terms.stop)
        self._stop_set = request.stop_set
        self._logprobs: list[Logprobs] = []

    @property
    def key(self) -> int:
        """Its number in the journal."""
        return self.request.number << KEY_BITS | self.index

    def accept(self, first: int, new_ids: Sequence[int], logprobs: Logprobs | None = None, n_cached: int = 0) -> int:
        """Take tokens `first`, first + 1, ...; returns how many of `new_ids` (at their end) were new.

        Known ones are skipped, and those after the ending are not taken. `n_cached` counts for the attempt that gave token 0:
        what later ones find in a cache is what this very request has put there. Raises: Gap.
        """
        start = len(self.ids)
        skip = start - first
        if self.ended is not None:
            return 0
        if skip < 0:
            raise Gap(f"first: expected at most {start}, got {first}")
        if not start:
            self.n_cached = n_cached
        ids, texts, push, filter_text = self.ids, self.texts, self._detokenizer.push, self._stop_filter.push
        for token in new_ids[skip:] if skip else new_ids:
            ids.append(token)
            texts.append("" if token in self._stop_set else filter_text(push(token)))
            if self._stop_filter.is_matched:
                self.ended = Ended(reason="stop", n_cached=self.n_cached)
                break
        taken = len(ids) - start
        if taken:
            self.n_losses = 0
            if logprobs is not None:
                self._logprobs.append(logprobs.part(skip, skip + taken))
        return taken

    def end(self, ended: Ended) -> bool:
        """Set the ending unless there is one; False when there is."""
        if self.ended is not None:
            return False
        self.tail = self._stop_filter.push(self._detokenizer.flush())
        if self._stop_filter.is_matched:
            ended = Ended(reason="stop", n_cached=ended.n_cached)
        self.tail += self._stop_filter.flush()
        self.ended = ended
        return True

    def withdraw(self, ended: Ended) -> None:
        """It was never accepted: nobody will see its tokens, and whatever ended it meanwhile, this is its ending."""
        self.ended, self.tail = ended, ""

    def publish(self, n_tokens: int, with_end: bool) -> None:
        """Tokens below `n_tokens` (and the ending) are recorded now."""
        self.n_visible = n_tokens
        self.is_end_visible = self.is_end_visible or with_end

    def note_visible(self, now_s: float) -> None:
        """Tokens become visible at `now_s`; the first of the request's are its first token."""
        self.last_visible_s = now_s
        if not self.request.first_token_s:
            self.request.first_token_s = now_s

    def logprobs_of(self, start: int, stop: int) -> Logprobs:
        """Of tokens start .. stop - 1 (only where asked for)."""
        if len(self._logprobs) > 1:
            self._logprobs = [_joined(self._logprobs)]
        return self._logprobs[0].part(start, stop) if self._logprobs else no_logprobs()

    def all_tokens(self) -> np.ndarray:
        """Prompt and known output: int32 [n]."""
        prompt = self.request.order.prompt_of(self.index)
        return np.concatenate([prompt, np.array(self.ids, dtype="<i4")]) if self.ids else prompt


class Request:
    """One client request. `watchers` are called after each publication that concerns it."""

    def __init__(self, number: int, order: Order, new_detokenizer: Callable[[np.ndarray], Detokenizer], began_s: float) -> None:
        self.number, self.order, self.began_s = number, order, began_s
        self.stop_set = frozenset(order.terms.stop_tokens)
        self.n_prompt = [len(prompt) // 4 for prompt in order.prompts]
        self.sequences = [
            GrowingSequence(self, index, new_detokenizer(order.prompt_of(index))) for index in range(order.n_sequences)
        ]
        self.n_open = len(self.sequences)  # sequences whose end is not visible
        self.is_recorded = False
        self.first_token_s = 0.0
        self.ended_s = 0.0
        self.n_checkpointed = 0  # visible tokens at the last checkpoint
        self.orphaned_s = 0.0  # since when nobody reads it, 0: it has a reader
        self.watchers: list[Callable[[], None]] = []

    @property
    def is_over(self) -> bool:
        """Every sequence has its ending, visibly."""
        return self.n_open == 0

    @property
    def is_settled(self) -> bool:
        """Its fate is known well enough to answer a client: every sequence is held by a scheduler, has tokens, or has ended."""
        return self.is_over or (self.is_recorded and all(s.is_taken or s.n_visible or s.is_end_visible for s in self.sequences))

    @property
    def n_generated(self) -> int:
        """Visible tokens of all sequences."""
        return sum(s.n_visible for s in self.sequences)

    def wake(self) -> None:
        """Tell the watchers that more is visible."""
        for watcher in tuple(self.watchers):
            watcher()


def _joined(parts: list[Logprobs]) -> Logprobs:
    width = max(part.top_ids.shape[1] for part in parts)
    padded = [part if part.top_ids.shape[1] == width else _widened(part, width) for part in parts]
    return Logprobs(
        np.concatenate([p.chosen for p in padded]),
        np.concatenate([p.top_ids for p in padded]),
        np.concatenate([p.top for p in padded]),
    )


def _widened(part: Logprobs, width: int) -> Logprobs:
    missing = width - part.top_ids.shape[1]
    ids = np.pad(part.top_ids, ((0, 0), (0, missing)), constant_values=-1)
    return Logprobs(part.chosen, ids, np.pad(part.top, ((0, 0), (0, missing)), constant_values=np.nan))
