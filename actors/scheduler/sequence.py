"""One sequence as its scheduler sees it, and the invariant that explains chunked prefill, overlap and drafts at once.

    computed <= planned < on_device = known + in_flight          planned catches up with on_device

- `known`: tokens whose ids this process holds (prompt, then generated ones).
- `in_flight`: tokens that steps on their way will sample; their ids are on the device only.
- `planned`: positions whose keys and values are computed, or will be by steps on their way.

A step plans positions [planned, planned + n). When that reaches `on_device`, the step samples one token more. Prefill is a
sequence that is far behind, decode one that is one behind; a preempted one starts again at 0. Nobody but the scheduler's own
files writes these fields.

    WAITING --admit--> RUNNING --finish--> ENDED
       ^------preempt----'  |
       '------ finish (cancel, refusal) --> ENDED
"""

from __future__ import annotations

from array import array
from enum import Enum

import numpy as np

from actors.pages.page_hash import ROOT, page_hash
from messages.generation import Submit
from messages.steps import PAGE_TOKENS


class State(Enum):
    """Where a sequence is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Sequence:
    """See the file's header."""

    def __init__(self, gateway: str, submit: Submit, number: int) -> None:
        self.gateway, self.attempt = gateway, int(submit.attempt)
        self.number = number  # unique in this scheduler; also the order of arrival
        self.priority = submit.priority
        self.sampling = submit.sampling
        self.stop_tokens = frozenset(submit.stop_tokens)
        self.n_prompt, self.max_tokens = int(submit.n_prompt), int(submit.max_tokens)
        self.wants_drafts = submit.speculation
        self.tell_every = submit.tell_every
        self.n_told = self._n_told_before = len(submit.tokens) - self.n_prompt  # generated tokens that the gateway has
        self._ids = array("i", np.ascontiguousarray(submit.tokens, dtype="<i4").tobytes())
        self.known = len(submit.tokens)
        self.state = State.WAITING
        self.life = 0  # grows with each preemption: results of an older life are void
        self.slot = -1
        self.pages: list[int] = []
        self.planned = self.in_flight = 0
        self.n_cached = 0
        self.is_verifying = False
        self._hashes: list[int] = []  # of the full pages of known tokens, as far as they were asked for
        self.n_sealed = 0  # leading pages that the ledger knows by content

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def on_device(self) -> int:
        """Tokens that the device knows once all steps on their way have run."""
        return self.known + self.in_flight

    @property
    def behind(self) -> int:
        """Positions still to plan."""
        return self.known + self.in_flight - self.planned

    @property
    def n_generated(self) -> int:
        """Generated tokens whose ids are known."""
        return self.known - self.n_prompt

    @property
    def room(self) -> int:
        """Tokens that may still be sampled beyond those on their way."""
        return self.max_tokens + self.n_prompt - self.known - self.in_flight

    def tokens(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Ids of known positions [start, stop), int32 copy."""
        end = self.known if stop is None else stop
        return np.frombuffer(self._ids[start:end], dtype="<i4")

    def append(self, ids: list[int]) -> None:
        """Generated ids became known."""
        self._ids.extend(ids)
        self.known += len(ids)

    # -- what the gateway knows --------------------------------------------------------------------------------------

    @property
    def is_worth_telling(self) -> bool:
        """Has the gateway waited long enough? An attempt's first token is told at once: it shows that something came of it."""
        return self.n_told == self._n_told_before or self.n_generated - self.n_told >= self.tell_every

    def tell(self) -> tuple[int, list[int]]:
        """The generated tokens that the gateway has not been told, and the index of the first."""
        first, self.n_told = self.n_told, self.n_generated
        return first, self._ids[self.n_prompt + first : self.known].tolist()

    # -- pages -----------------------------------------------------------------------------------------------------

    def pages_short(self, up_to: int) -> int:
        """Pages missing to hold positions [0, up_to)."""
        return -(-up_to // PAGE_TOKENS) - len(self.pages)

    def page_content(self, index: int) -> tuple[int, int, bytes]:
        """(hash, parent's hash, token bytes) of a full page of known tokens."""
        while len(self._hashes) <= index:
            tokens = self._page_tokens(len(self._hashes))
            self._hashes.append(page_hash(self._hashes[-1] if self._hashes else ROOT, tokens))
        parent = self._hashes[index - 1] if index else ROOT
        return self._hashes[index], parent, self._page_tokens(index)

    def _page_tokens(self, index: int) -> bytes:
        return self._ids[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS].tobytes()

    # -- moves -----------------------------------------------------------------------------------------------------

    def admit(self, slot: int) -> None:
        """WAITING -> RUNNING in a slot; its pages so far (shared prefix) are already in `pages`."""
        assert self.state is State.WAITING
        self.state, self.slot = State.RUNNING, slot

    def preempt(self) -> list[int]:
        """RUNNING -> WAITING; everything is computed again. Returns the pages to release."""
        assert self.state is State.RUNNING
        self.state = State.WAITING
        return self._leave()

    def finish(self) -> list[int]:
        """Any -> ENDED. Returns the pages to release."""
        assert self.state is not State.ENDED
        self.state = State.ENDED
        return self._leave()

    def _leave(self) -> list[int]:
        pages, self.pages = self.pages, []
        self.life += 1
        self.slot = -1
        self.planned = self.in_flight = self.n_sealed = 0
        self.is_verifying = False
        return pages
