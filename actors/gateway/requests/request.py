"""One client request: its sequences, how much of each is visible, and their endings. Pure: no messages, no await, no clock.

                  accept (tokens of a step)                 publish (recorded in the journal)
    scheduler's mail ----------------------> ids, ended  ------------------------------------> n_visible, is_end_visible
                  end (stop, length, ...)                                                             readers see this

Invariants: tokens are numbered from 0 and accepted without a gap or a repetition. `ended` is set once; only a withdrawal may
replace it, because no client has seen anything of a withdrawn request. Everything visible is recorded (`journal/writer.py` says
what happens while the disk refuses writes). Replaying the recorded tokens gives the same text at the same token numbers.
`stream_items` is the order in which all of it became visible (`stream_items.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from weakref import ref

import msgspec
import numpy as np

from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.requests.sequence_logprobs import SequenceLogprobs
from actors.gateway.requests.sequence_text import SequenceText
from actors.gateway.requests.similar_key import SimilarKey
from actors.gateway.requests.stream_items import END_ITEM, KEY_BITS, PING_ITEM, RUN_ITEM
from actors.gateway.text.detokenizer import Detokenizer
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.generation.sequences import Suspicion
from messages.outcomes import EndReason

_INCARNATIONS = 1024  # so many gateways, one after the other, cannot give two runs of a request the same number
_COMPLETE: tuple[EndReason, ...] = ("stop", "length")


class Gap(Exception):
    """New tokens do not follow the known ones: some are missing."""


class GrowingSequence:
    """One sequence of a request: its tokens, their text, and its present submission to a scheduler. It does not keep its
    request: a circle of both would wait for the collector of garbage, which stops the gateway."""

    __slots__ = (
        "_request",
        "_stream_items",
        "_text",
        "attempt",
        "avoided",
        "ended",
        "ids",
        "index",
        "is_end_visible",
        "is_recalled",
        "is_resumable",
        "is_taken",
        "key",
        "last_visible_s",
        "logprobs",
        "moved_s",
        "n_cached",
        "n_losses",
        "n_prompt",
        "n_submissions",
        "n_visible",
        "queued_tokens",
        "replicas_harmed",
        "scheduler",
        "spec",
        "suspicion",
        "tail",
        "texts",
        "wants_logprobs",
    )

    def __init__(self, request: Request, index: int, detokenizer: Detokenizer) -> None:
        self._request, self.spec, self.index = ref(request), request.spec, index
        self.n_prompt = request.n_prompt_of(index)
        self.key = request.number << KEY_BITS | index  # its number in the journal
        self._stream_items = request.stream_items
        self.wants_logprobs = request.spec.sampling.logprobs >= 0
        self.is_resumable = request.spec.is_resumable
        self.ids: list[int] = []
        self._text = SequenceText(detokenizer, request.spec.terms, request.stop_set)
        self.texts = self._text.texts
        self.logprobs = SequenceLogprobs()
        self.tail = ""  # the text that became certain with the ending
        self.n_cached = 0  # prompt tokens that needed no prefill when token 0 was computed
        self.n_visible = 0
        self.ended: Ended | None = None
        self.is_end_visible = False
        self.last_visible_s = 0.0  # when its newest tokens became visible, 0: none have
        self.attempt = 0  # number of the present submission, 0: none
        self.scheduler = ""  # its scheduler, "": none
        self.is_taken = False  # that scheduler has confirmed the submission
        self.is_recalled = False  # its scheduler was asked to give the submission back
        self.avoided = ""  # the scheduler that has given it back, "": none
        self.moved_s = 0.0  # when it was given back last, by the monotonic clock; 0: never
        self.n_submissions = 0
        self.queued_tokens = 0  # what it counts in the queue of its gateway, until it has a visible token
        self.n_losses = 0  # submissions lost since the last new token
        self.suspicion: Suspicion | None = None  # as the last replica has told it
        self.replicas_harmed: frozenset[str] = frozenset()  # schedulers whose gangs have died with this sequence alone

    @property
    def request(self) -> Request:
        """The request that it belongs to. Raises: ReferenceError if nobody keeps that."""
        if (request := self._request()) is None:
            raise ReferenceError(f"sequence {self.index}: its request is gone")
        return request

    def accept(self, first: int, new_ids: Sequence[int], logprobs: TokenLogprobs | None = None, n_cached: int = 0) -> int:
        """Append tokens with numbers `first`, first + 1, ...; returns how many of them were appended.

        Tokens that are known already are skipped; tokens after the ending are ignored. `n_cached`, the cached prompt tokens of
        this attempt, is kept only with token 0: a later attempt finds pages that this request itself has cached. Raises: Gap.
        """
        start = len(self.ids)
        skip = start - first
        if self.ended is not None:
            return 0
        if skip < 0:
            raise Gap(f"first: expected at most {start}, got {first}")
        if not start:
            self.n_cached = n_cached
            self._check_prompt(new_ids)
        new_ids = new_ids[skip:] if skip else new_ids
        text = self._text
        taken = text.push(new_ids)
        self.ids.extend(new_ids[:taken])
        if text.is_stopped:
            self.ended = Ended(reason="stop", n_cached=self.n_cached)
        if taken:
            self.n_losses = 0
            if logprobs is not None:
                self.logprobs.add(logprobs.part(skip, skip + taken))
        return taken

    def end(self, ended: Ended) -> bool:
        """Set the ending. Returns False, and changes nothing, if the sequence has one already."""
        if self.ended is not None:
            return False
        self.tail = self._text.finish()
        if self._text.is_stopped and ended.reason in _COMPLETE:  # a failure stays one, whatever the rest of the text is
            ended = Ended(reason="stop", n_cached=ended.n_cached, work=ended.work)
        self.ended = ended
        return True

    @property
    def matched_stop(self) -> str:
        """The stop string that has ended it; "" if none has."""
        return self._text.matched_stop

    def note_times(self, first_token_s: float, lasted_s: float) -> None:
        """Add to its ending how long it took."""
        if self.ended is not None:
            self.ended = msgspec.structs.replace(self.ended, first_token_s=first_token_s, lasted_s=lasted_s)

    def withdraw(self, ended: Ended) -> None:
        """The request could not be recorded and is not accepted: replace any ending by `ended`. No token becomes visible."""
        self.ended, self.tail = ended, ""

    def publish(self, n_tokens: int, with_end: bool) -> None:
        """Make tokens below `n_tokens`, and the ending if `with_end`, visible to readers."""
        items, n_new = self._stream_items, n_tokens - self.n_visible
        if n_new == 1:  # the most frequent case
            items.append(self.index)
        elif n_new > 1:
            items.extend([self.index] * n_new)
        self.n_visible = n_tokens
        if with_end and not self.is_end_visible:
            items.append(END_ITEM | self.index)
            self.is_end_visible = True

    def add_prompt_logprobs(self, part: PromptLogprobs) -> None:
        """Add log probabilities of the next tokens of its prompt. A sequence that has tokens has all of them."""
        if not self.ids:
            self.logprobs.add_prompt(part)

    def _check_prompt(self, first_ids: Sequence[int]) -> None:
        """Raises: Gap if log probabilities of the prompt are missing before the first ids. A record may have a row without."""
        if first_ids and self.spec.terms.prompt_logprobs >= 0:
            wanted, got = self.n_prompt - 1, self.logprobs.n_of_prompt
            if got != wanted:
                raise Gap(f"prompts: expected log probabilities of {wanted} tokens, got {got}")

    def suspicion_now(self) -> Suspicion | None:
        """The suspicion under which it is; None once it has more tokens than were computed at the deaths of gangs."""
        if self.suspicion is not None and len(self.ids) + self.n_prompt > self.suspicion.reach:
            self.suspicion = None
        return self.suspicion

    def all_tokens(self) -> np.ndarray:
        """Prompt tokens followed by the known output tokens: int32 [n]."""
        prompt = self.spec.prompt_of(self.index)
        return np.concatenate([prompt, np.array(self.ids, dtype="<i4")]) if self.ids else prompt


class Request:
    """One client request. `watchers` are called whenever more of it is visible."""

    def __init__(
        self, number: int, spec: RequestSpec, new_detokenizer: Callable[[np.ndarray], Detokenizer], began_s: float
    ) -> None:
        self.number, self.spec, self.began_s = number, spec, began_s
        self.stop_set = frozenset(spec.terms.stop_tokens)
        self.n_prompt = [len(prompt) // 4 for prompt in spec.prompts]
        # Everything visible of all sequences, in order. A token is the index of its sequence; an ending is that index plus
        # `END_ITEM`; the others are `PING_ITEM` and `RUN_ITEM`. The array is never replaced by another one.
        self.stream_items = array("i")
        self.runs: list[int] = []  # the numbers of the runs that the `RUN_ITEM`s begin, rising; the first run is 0
        self.sequences = [GrowingSequence(self, i, new_detokenizer(spec.prompt_of(i))) for i in range(spec.n_sequences)]
        self.n_open = len(self.sequences)  # sequences whose ending is not visible
        self.n_held = 0  # sequences that count for its caller
        self.counted_for = spec.terms.caller  # whom they and its queued tokens count for
        self.is_ping_coming = False  # a ping is on its way into the journal
        self.takes_pings = True  # False: a client has more than the journal had, and no ping may come between
        self.is_recorded = False  # the journal has its specification, or needs it not
        self.is_at_once = False  # accepted and answered in one turn of the event loop: no death comes between, so no journal
        self.n_restored_items: int | None = None  # items that the journal had when this process restored it
        self.identity: ModelIdentity | None = None  # the model for which an earlier process accepted it; None: this process did
        self.first_token_s = 0.0  # when its first token became visible, 0: none has
        self.is_first_token_timed = True  # False: an earlier process has shown it, at `first_token_s` at the latest
        self.ended_s = 0.0  # when its last ending became visible, 0: it has not
        self.orphaned_s = 0.0  # when its last reader left; 0: it has a reader
        self.answer_key = b""  # under which its answer is kept; b"": it is not
        self.similar_key: SimilarKey | None = None  # under which its answer is kept for similar ones; None: it is not
        self.watchers: list[Callable[[], None]] = []
        self.on_unwatched: Callable[[Request], None] = lambda request: None  # called when a watcher has left

    def n_prompt_of(self, index: int) -> int:
        """Prompt tokens of sequence `index`."""
        return self.n_prompt[index // self.spec.n]

    @property
    def is_over(self) -> bool:
        """True if the endings of all sequences are visible."""
        return self.n_open == 0

    @property
    def is_withdrawn(self) -> bool:
        """True if the journal could not record it: it was never accepted, and its client is refused."""
        return self.is_over and not self.is_recorded

    @property
    def is_settled(self) -> bool:
        """True if an HTTP status can be sent: it is recorded, and each sequence is at a scheduler, has tokens or has ended."""
        return self.is_over or (self.is_recorded and all(s.is_taken or s.n_visible or s.is_end_visible for s in self.sequences))

    @property
    def n_generated(self) -> int:
        """Number of visible tokens of all sequences."""
        return sum([s.n_visible for s in self.sequences])

    @property
    def run(self) -> int:
        """The number of the present run of the request; 0 is the first one."""
        return self.runs[-1] if self.runs else 0

    @property
    def shown_run(self) -> int:
        """The run to which the newest visible item belongs. The journal has that run, and perhaps not the present one yet."""
        n_empty, items = 0, self.stream_items  # runs at the end in which nothing is visible
        while n_empty < len(items) and items[-1 - n_empty] == RUN_ITEM:
            n_empty += 1
        return self.runs[-1 - n_empty] if n_empty < len(self.runs) else 0

    def begin_run(self, now_s: float, incarnation: int, *, is_marked: bool = False) -> None:
        """Another process goes on with this request. Its run needs a number that none before had, also where the journal has
        lost those runs, and the age of the request too: what remains after a division tells incarnations of the gateway apart.
        `now_s`: the monotonic clock.
        `is_marked`: the items have the place where this run begins already, under a number that nobody has been told.
        """
        number = max(int((now_s - self.began_s) * 1e3), self.run + 1)
        number += (incarnation - number) % _INCARNATIONS
        if is_marked:
            self.runs[-1] = number
            return
        self.runs.append(number)
        self.stream_items.append(RUN_ITEM)

    def show_ping(self) -> None:
        """A ping becomes visible: every stream of this request has it at this place."""
        self.is_ping_coming = False
        self.stream_items.append(PING_ITEM)

    def recorded(self) -> None:
        """The journal has it: clients may learn that it is accepted."""
        self.is_recorded = True
        self.wake()

    def wake(self) -> None:
        """Call the watchers."""
        if len(self.watchers) == 1:  # the most frequent case
            self.watchers[0]()
            return
        for watcher in tuple(self.watchers):
            watcher()
