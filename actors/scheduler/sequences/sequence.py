"""One sequence as its scheduler sees it, and the invariant that explains chunked prefill, overlap and drafts at once.

    computed <= planned < on_device = known + in_flight          planned catches up with on_device

- `known`: tokens whose ids this process holds (prompt, then generated ones).
- `in_flight`: tokens that the steps in flight will sample; their ids are on the device only.
- `planned`: positions whose keys and values are computed, or will be by the steps in flight.

A step plans positions [planned, planned + n). When that reaches `on_device`, the step samples one more token. A sequence with
many unplanned positions is in prefill, one with a single unplanned position in decode; a preempted one starts again at 0. Only
files of this folder write these fields.

    WAITING --admit--> RUNNING --finish--> ENDED
       ^------preempt----'  |
       '------ finish (cancel, refusal) --> ENDED

When its gang is lost, a running sequence stays in its slot (`interrupt`), until the next gang says whether it has the memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from enum import Enum

import numpy as np

from actors.pages.chain_root import root_of
from actors.pages.page_hash import add_hashes, page_hash
from actors.scheduler.sequences.grammar_state import GrammarState
from actors.scheduler.sequences.timeline import Timeline
from messages.generation.logprobs import PromptLogprobs
from messages.generation.sequences import Submit
from messages.steps import PAGE_TOKENS

_PAGE_BYTES = PAGE_TOKENS * 4
_HASHED_TOGETHER = 32  # pages: half of them in vain, on average


class State(Enum):
    """Where a sequence stands; the transitions are in the file's header."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Sequence:
    """One sequence of one gateway. `number`: unique in this scheduler, in order of arrival."""

    __slots__ = (  # plans read several fields of each running sequence: slots are faster than a dictionary
        "_hashes", "_is_promised", "_n_scored", "_promised", "age_s", "attempt", "borrowed_stay", "cached_stay", "decode_stay",
        "disk_stay", "forced", "gateway", "grammar_state", "holder", "ids", "in_flight", "is_again", "is_verifying", "known",
        "leader", "loaded_stay", "max_tokens", "n_before", "n_before_stay", "n_cached", "n_displaced", "n_prompt", "n_sealed",
        "n_sent", "n_shared", "number", "pages", "planned", "queued_tokens", "request", "root", "sampling", "slot", "state",
        "stay", "stop_tokens", "terms", "timeline", "was_forced", "x_request_id",
    )  # fmt: skip

    def __init__(self, gateway: str, submit: Submit, number: int) -> None:
        self.gateway, self.attempt, self.request = gateway, int(submit.attempt), submit.request
        self.x_request_id, self.number = submit.x_request_id, number
        self.sampling, self.terms = submit.sampling, submit.terms
        self.root = root_of(submit.terms.cache_scope, submit.terms.cache_salt)
        self.stop_tokens = frozenset(submit.terms.stop_tokens)
        self.n_prompt = int(submit.n_prompt)
        self.max_tokens = self._promised = submit.terms.max_tokens  # the gang's context and memory may lower them
        self.n_sent = self.n_before = len(submit.tokens) - self.n_prompt  # generated tokens that the gateway has; had at first
        self._is_promised = self.n_sent > 0  # an earlier gang has accepted it
        self.ids = array("i", np.ascontiguousarray(submit.tokens, dtype="<i4").tobytes())  # of all known tokens
        self.known = len(submit.tokens)
        self.state, self.slot = State.WAITING, -1
        self.stay = 0  # how often it has left a slot or lost its gang; results for an earlier stay are ignored
        self.loaded_stay = -1  # the last one in which it has waited for pages of the host tier
        self.disk_stay = -1  # the last one in which it has had pages read from the disk
        self.borrowed_stay = -1  # the last one in which it has waited for pages of another replica
        self.decode_stay = -1  # the last one in which it has been in a `DecodeBatch`
        self.holder = submit.holder
        self.age_s, self.is_again = submit.age_s, submit.is_again
        self.n_displaced = self.n_before_stay = 0  # how often it has given its slot away; `known` when it got the last one
        self.pages: list[int] = []
        self.planned = self.in_flight = 0
        self.n_cached = self.cached_stay = 0  # tokens reused from the cache in its first stay that was not in vain; which it is
        self.is_verifying = False  # a row with drafts is in flight; its result decides the next position
        self.forced: tuple[int, list[int]] | None = None  # (position, ids): tokens that its grammar allows alone
        self.was_forced = False  # at least once
        self.grammar_state = GrammarState()
        self._hashes: list[int] = []  # of full pages of known tokens; `page_content` adds to it
        self.n_sealed = 0  # leading pages whose content the ledger knows
        self.queued_tokens = 0  # while it waits: what it counts in `QueuedWork`
        self.leader: tuple[Sequence, int] | None = None  # while it waits: who computes its first tokens, and how many of them
        self.timeline = Timeline()
        self.n_shared = 0  # leading pages that it found in the ledger when it entered its slot
        # Positions of the prompt whose log probabilities have come. Gateways that have a generated token have all of them.
        self._n_scored = self.n_prompt if submit.terms.prompt_logprobs < 0 or self.n_sent else 0

    @property
    def log_fields(self) -> dict[str, object]:
        """Fields for log lines about this sequence: its request, its attempt, and its client's X-Request-Id and trace id if it
        has them."""
        fields: dict[str, object] = {"request": self.request, "attempt": self.attempt}
        if self.x_request_id:
            fields["x_request_id"] = self.x_request_id
        if self.terms.trace_id:
            fields["trace"] = self.terms.trace_id.hex()
        return fields

    @property
    def has_never_run(self) -> bool:
        """True if it waits for its first slot."""
        return self.state is State.WAITING and not self.stay and not self.timeline.started_s

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def on_device(self) -> int:
        """Tokens that the device knows once all steps in flight have run."""
        return self.known + self.in_flight

    @property
    def n_unplanned(self) -> int:
        """Positions that no step has planned yet."""
        return self.known + self.in_flight - self.planned

    @property
    def n_generated(self) -> int:
        """Generated tokens whose ids are known."""
        return self.known - self.n_prompt

    @property
    def n_samples_left(self) -> int:
        """Tokens that may still be sampled after those of the steps in flight."""
        return self.max_tokens + self.n_prompt - self.known - self.in_flight

    @property
    def prompt_logprobs_due(self) -> int:
        """Number of most probable tokens that are wanted at each place of its prompt; -1: none, or all have come."""
        return self.terms.prompt_logprobs if self._n_scored < self.n_prompt - 1 else -1

    @property
    def n_reusable(self) -> int:
        """Leading positions that need not be computed again where their keys and values are kept. A position whose log
        probabilities have not come must be: only the hidden states of a step give them."""
        return self.known if self.prompt_logprobs_due < 0 else self._n_scored

    def tokens(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Ids of the known positions [start, stop): [stop - start] int32, a copy. `stop` None: all known ones."""
        end = self.known if stop is None else stop
        return np.frombuffer(self.ids[start:end], dtype="<i4")

    @property
    def is_cut(self) -> bool:
        """True if its gang can hold fewer tokens than the gang that accepted it, so that it would be cut short."""
        return self.max_tokens < self._promised

    def fit_to(self, most_tokens: int) -> None:
        """Limit the answer to the `most_tokens` generated tokens that the gang can hold. Only the first call counts: the
        client is promised its limit."""
        if not self._is_promised:
            self._promised = min(self._promised, most_tokens)
            self._is_promised = True
        self.max_tokens = min(self._promised, most_tokens)

    def append(self, ids: Collection[int]) -> None:
        """Add generated ids, which have become known."""
        self.ids.extend(ids)
        self.known += len(ids)

    def force(self, position: int, ids: list[int]) -> None:
        """The grammar allows nothing but these ids from `position` on. They need not be kept: the next result has them too."""
        self.forced, self.was_forced = (position, ids), True

    @property
    def n_forced(self) -> int:
        """Forced tokens that no step in flight samples."""
        return self.forced[0] + len(self.forced[1]) - self.on_device if self.forced is not None else 0

    def take_forced(self, depth: int) -> list[int]:
        """At most `depth` forced tokens for the positions after all known ones, once."""
        position, ids = self.forced or (0, [])
        self.forced = None
        n_known = self.known - position
        return ids[n_known : n_known + depth] if n_known >= 0 and ids[:n_known] == self.tokens(position).tolist() else []

    def new_prompt_logprobs(self, part: PromptLogprobs) -> PromptLogprobs | None:
        """What is new in log probabilities that a row of its prompt has given; None if nothing is. Raises: ValueError if those
        before it have not come."""
        n_known = self._n_scored - part.first
        if n_known < 0:
            raise ValueError(f"prompts.first: expected at most {self._n_scored}, got {part.first}")
        if n_known >= part.n_tokens:
            return None
        self._n_scored = part.first + part.n_tokens
        return part.of(self.attempt, n_known)

    # -- what the gateway knows --------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """True if tokens should be sent to the gateway now: the first token of an attempt at once, as a sign of progress, and
        then whenever `terms.group_tokens` tokens are unsent."""
        return self.n_sent == self.n_before or self.n_generated - self.n_sent >= self.terms.group_tokens

    def take_unsent(self) -> tuple[int, list[int]]:
        """(index of the first one among the generated tokens, ids) of the tokens not sent yet; counts them as sent."""
        first, self.n_sent = self.n_sent, self.n_generated
        return first, self.ids[self.n_prompt + first : self.known].tolist()

    # -- pages -----------------------------------------------------------------------------------------------------

    def pages_short(self, up_to: int) -> int:
        """Number of pages that positions [0, up_to) need beyond those held; negative if more pages are held."""
        return -(-up_to // PAGE_TOKENS) - len(self.pages)

    def page_content(self, index: int) -> tuple[int, int, bytes]:
        """(hash, parent's hash, token bytes) of a full page of known tokens."""
        hashes, tokens = self._hashes, self._page_tokens(index)
        while len(hashes) < index:
            hashes.append(page_hash(hashes[-1] if hashes else self.root, self._page_tokens(len(hashes))))
        parent = hashes[index - 1] if index else self.root
        if len(hashes) == index:
            hashes.append(page_hash(parent, tokens))
        return hashes[index], parent, tokens

    def page_contents(self, n_pages: int, first: int = 0) -> Iterator[tuple[int, int, bytes]]:
        """`page_content` of pages [first, n_pages) of known tokens, in less time. Hashes some pages more than are asked for."""
        hashes, data = self._hashes, self.ids[: n_pages * PAGE_TOKENS].tobytes()
        for at in range(first, n_pages, _HASHED_TOGETHER):
            end = min(at + _HASHED_TOGETHER, n_pages)
            add_hashes(hashes, self.root, data[: end * _PAGE_BYTES])
            parents = hashes[at - 1 : end - 1] if at else [self.root, *hashes[: end - 1]]
            tokens = [data[start : start + _PAGE_BYTES] for start in range(at * _PAGE_BYTES, end * _PAGE_BYTES, _PAGE_BYTES)]
            yield from zip(hashes[at:end], parents, tokens, strict=True)

    def known_part(self, index: int) -> tuple[int, bytes]:
        """(hash of the page before, token bytes) of a page that known tokens fill, at least in part."""
        return self.known_hash(index - 1) if index else self.root, self._page_tokens(index)

    def known_hash(self, index: int) -> int:
        """The hash of a page that known tokens fill, at least in part."""
        if index < len(self._hashes):
            return self._hashes[index]
        return self.page_content(index)[0] if (index + 1) * PAGE_TOKENS <= self.known else page_hash(*self.known_part(index))

    def open_content(self, n_full: int) -> tuple[int, bytes] | None:
        """(hash of the page before, token bytes) of the reusable positions after the first `n_full` pages; at most 15 of them,
        because a full page may be recorded as an open one for a while. None if there are none."""
        start = n_full * PAGE_TOKENS
        stop = min(self.known - 1, self.n_reusable, start + PAGE_TOKENS - 1)
        if stop <= start:
            return None
        return self.page_content(n_full - 1)[0] if n_full else self.root, self.tokens(start, stop).tobytes()

    def _page_tokens(self, index: int) -> bytes:
        return self.ids[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS].tobytes()

    # -- transitions -----------------------------------------------------------------------------------------------------

    def start(self, slot: int) -> None:
        """WAITING -> RUNNING in this slot. The pages of a shared prefix are in `pages` already."""
        assert self.state is State.WAITING
        self.state, self.slot, self.leader, self.n_before_stay = State.RUNNING, slot, None, self.known

    def interrupt(self, n_kept: int, unsealed: Collection[int]) -> list[int]:
        """The steps in flight are lost; positions [0, n_kept) still have their keys and values. The sequence keeps its slot and
        the pages of these positions, also a partly filled last one. The ledger has forgotten the content of the pages in
        `unsealed`. Returns the pages to release."""
        assert self.state is State.RUNNING
        assert n_kept <= self.planned
        assert n_kept < self.known
        n_pages = -(-n_kept // PAGE_TOKENS)
        self.pages, lost = self.pages[:n_pages], self.pages[n_pages:]
        self.stay += 1
        self.planned, self.in_flight = n_kept, 0
        self.n_shared = min(self.n_shared, n_pages)
        self.n_sealed = min(self.n_sealed, n_kept // PAGE_TOKENS)
        self.n_sealed = next((i for i, page in enumerate(self.pages[: self.n_sealed]) if page in unsealed), self.n_sealed)
        self.is_verifying = False
        return lost

    def preempt(self) -> list[int]:
        """RUNNING -> WAITING; everything will be computed again. Returns the pages to release."""
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
        self.stay += 1
        self.slot = -1
        self.planned = self.in_flight = self.n_sealed = self.n_shared = 0
        self.is_verifying = False
        return pages
