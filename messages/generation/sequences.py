"""Messages between gateways and schedulers about one sequence, from its submission to its one ending.

Every attempt gets exactly one ending, an `Ending` inside `Tokens` or a `Refused`. Generated tokens are numbered from 0 over all
attempts of a sequence, so a token that is delivered twice is recognised.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from messages.generation.logprobs import PromptParts, TokenLogprobs
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from messages.limits import MAX_SEQUENCES
from messages.outcomes import Code, EndReason, NoCode
from messages.wire.arrays import Int32s, Int64s, total
from messages.wire.message import Count, LongText, Message, Part, ShortText

CancelReason = Literal[
    "client_left",
    "stop_string",
    "deadline",
    "replaced",  # a new attempt follows
    "withdrawn",  # the journal could not record the request
    "quarantined",  # a sequence that computes the same has killed workers
]


class Suspicion(Part, frozen=True):
    """The deaths of gangs that one sequence may have caused. It goes with the sequence when it moves to another replica."""

    deaths: Count  # at which a step of the sequence was in flight
    certain: Count  # of these, the ones that no other sequence can have caused, in a row and without progress
    reach: Count  # tokens: once so many positions are computed, the sequence is free of suspicion
    passed: Count  # tokens: positions that were computed without a death


class Holder(Part, frozen=True):
    """The replica that has most of a prompt in its cache, and is not the one that gets the sequence."""

    replica: Count
    pages: Count  # leading ones of the prompt, as far as the cache directory knows


class Submit(Message, frozen=True):
    """Submits one sequence: prompt tokens, followed by the generated tokens that the gateway already has."""

    attempt: Count  # unique per gateway; a late answer to an older attempt is recognised and dropped
    request: ShortText
    tokens: Int32s  # prompt, then generated tokens
    n_prompt: Count  # how many of `tokens` are prompt
    sampling: Sampling
    terms: Terms  # limits count over all attempts: `max_tokens` includes the generated ones in `tokens`
    suspicion: Suspicion | None = None  # None: no gang has died with this sequence
    x_request_id: ShortText = ""  # what its client calls it, for log lines; "": nothing, or the gateway is of the last release
    holder: Holder | None = None  # None: no other replica has more of it, or this one cannot ask it
    age_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # since its request arrived; 0: the gateway is of the last release
    is_again: bool = False  # a scheduler has had an attempt of it before, so it is not refused for being late


class Taken(Message, frozen=True):
    """The scheduler has accepted this attempt."""

    attempt: Count


class Refused(Message, frozen=True):
    """The scheduler refuses this attempt. `retryable`: False if it can never run, True if its gateway may submit it again."""

    attempt: Count
    code: Code
    detail: LongText
    retryable: bool
    retry_after_s: float = 0.0  # after this time the client may ask again; 0: that does not help, or the gateway knows better


class Work(Part, frozen=True):
    """What one attempt has taken at its scheduler. Times are seconds of the monotonic clock."""

    queue_s: float = 0.0  # from its arrival to its slot
    prefill_s: float = 0.0  # from its slot to its first token
    decode_s: float = 0.0  # from its first token to its ending
    n_drafted: Count = 0  # draft tokens that were verified
    n_accepted: Count = 0  # of these, the ones that became tokens


class Ending(Part, frozen=True):
    """The one ending of an attempt. It comes in the same message as the last tokens of the attempt."""

    attempt: Count
    reason: EndReason
    n_cached: Count  # prompt tokens whose prefill was skipped by prefix reuse
    code: Code | NoCode = ""  # why it failed; "": the gateway knows no more than the reason
    detail: LongText = ""
    work: Work | None = None


class Tokens(Message, frozen=True):
    """All tokens of one step for one gateway: one message a step at most, whatever the number of streams.

    Row i carries `counts[i]` ids for attempt `attempts[i]`, the first of them being generated token `firsts[i]`;
    `ids` holds the rows one after the other; `cached[i]` tokens of that attempt's prompt needed no prefill.
    """

    number: Count  # counts the Tokens messages of this scheduler to this gateway, from 1
    attempts: Int64s
    firsts: Int32s
    counts: Int32s
    cached: Int32s
    ids: Int32s
    endings: Annotated[list[Ending], msgspec.Meta(max_length=MAX_SEQUENCES)]
    logprobs: TokenLogprobs | None = None  # of `ids`; None if no row asked for any
    prompts: PromptParts = []  # by attempt; all of a prompt have come with generated token 0

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = len(self.attempts)
        for name in ("firsts", "counts", "cached"):
            if len(getattr(self, name)) != rows:
                raise ValueError(f"{name}: expected {rows} rows as in attempts, got {len(getattr(self, name))}")
        if total(self.counts) != len(self.ids):
            raise ValueError(f"ids: expected {total(self.counts)} ids as counts say, got {len(self.ids)}")
        if self.logprobs is not None and self.logprobs.n_tokens != len(self.ids):
            raise ValueError(f"logprobs: expected those of {len(self.ids)} tokens, got {self.logprobs.n_tokens}")


class Holding(Message, frozen=True):
    """All attempts of one gateway that a scheduler has, sent about once a second. The gateway compares them with its own list.

    It comes after every `Tokens` up to `number`, and tells of every `Submit` up to the one of attempt `newest`. While `steps`,
    the number of steps that are done, stays the same, the replica computes nothing. `made_s`: when it was made, on the
    monotonic clock, which all processes of a host share; a gateway that is behind with its mail reads it late.
    """

    number: Count  # of the last Tokens message to this gateway
    newest: Count  # the highest attempt that has come from this gateway
    attempts: Int64s
    told: Int32s  # generated tokens of that attempt's sequence that the gateway has been sent, over all attempts
    steps: Count = 0
    made_s: float = 0.0  # 0: the scheduler is of the last release

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.told) != len(self.attempts):
            raise ValueError(f"told: expected {len(self.attempts)} rows as in attempts, got {len(self.told)}")


class Ack(Message, frozen=True):
    """Every `Tokens` up to this number is recorded in the gateway's journal, or in its memory while the disk refuses.

    It gives the scheduler credit for more messages. A gateway keeps at most `journal_buffer_bytes` (64 MiB by default) in
    memory only. If it dies before these are on its disk, its next incarnation has those tokens computed again.
    """

    up_to: Count


class Cancel(Message, frozen=True):
    """Stop working on this attempt. Answered by its Ending."""

    attempt: Count
    why: CancelReason
