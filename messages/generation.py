"""Messages between gateways and schedulers about one sequence, from its submission to its one ending.

Every attempt gets exactly one ending, an `Ending` inside `Tokens` or a `Refused`. Generated tokens are numbered from 0 over all
attempts of a sequence, so a token that is delivered twice is recognised.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, TypedDict, get_type_hints

import msgspec

from messages.logprobs import MAX_TOP_LOGPROBS, PromptParts, TokenLogprobs, TopWanted
from messages.outcomes import Code, EndReason, NoCode
from messages.wire.arrays import Int32s, Int64s, total
from messages.wire.message import NO_TRACE, CallerId, Count, LongText, Message, Part, Seed, ShortText, StrictPart, TraceId

MAX_STOP_STRINGS = 16
MAX_STOP_TOKENS = 64
MAX_BIASED_TOKENS = 1000
MAX_ALLOWED_TOKENS = 65_536
MAX_BAD_WORDS = 128
MAX_BAD_SEQUENCES = 2 * MAX_BAD_WORDS  # each word at the beginning of a text, and after a space
NO_TOKEN_LIMIT = 2**31 - 1  # a `max_tokens` that means: up to the model's context length
CancelReason = Literal[
    "client_left",
    "stop_string",
    "deadline",
    "replaced",  # a new attempt follows
    "withdrawn",  # the journal could not record the request
    "quarantined",  # a sequence that computes the same has killed workers
]


class Sampling(StrictPart, frozen=True):
    """How the next token is chosen. `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 are off.

    The noise of position p is a function of (seed, p) alone: never of the batch, of the attempt or of drafts. The example of a
    parameter is a value with which it is in use.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=100.0, examples=[0.8])] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0, examples=[0.9])] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1, examples=[20])] = 0
    min_p: Annotated[float, msgspec.Meta(ge=0.0, le=1.0, examples=[0.05])] = 0.0  # as a share of the greatest probability
    seed: Seed = 0
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2.0, le=2.0, examples=[0.1])] = 0.0
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2.0, le=2.0, examples=[0.1])] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=10.0, examples=[1.1])] = 1.0
    # -1: none; n: the chosen token's and the top n
    logprobs: Annotated[int, msgspec.Meta(ge=-1, le=MAX_TOP_LOGPROBS, examples=[2])] = -1


def example_sampling() -> Sampling:
    """A sampling that uses every parameter: each has the example of its declaration."""
    hints = get_type_hints(Sampling, include_extras=True)
    metas = {name: hints[name].__metadata__[0] for name in Sampling.__struct_fields__}
    return Sampling(**{name: meta.examples[0] for name, meta in metas.items() if meta.examples})


class SamplingOptions(TypedDict, total=False):
    """The fields of `Sampling` as keyword arguments, for type checkers. A test compares the two."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logprobs: int


TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Bias = Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]


class GrammarKind(StrEnum):
    """The language of a grammar."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"  # a JSON list of strings, one of which is the answer
    LLGUIDANCE = "llguidance"  # a grammar of the library llguidance, as JSON; admission turns all others into it


class Grammar(StrictPart, frozen=True):
    """What the text of an answer must be. Tokens that would break it are never sampled."""

    kind: GrammarKind
    text: LongText


class Terms(StrictPart, frozen=True):
    """What a client asks for besides its prompt and its `Sampling`. Carried whole from the API to the scheduler's sequence.
    Clients may set every term but those of `SERVER_TERMS`: a new field is offered by HTTP, ZeroMQ and the client library."""

    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=NO_TOKEN_LIMIT)] = NO_TOKEN_LIMIT  # generated tokens at most
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=NO_TOKEN_LIMIT)] = 0  # generated before a stop token or stop string counts
    stop: Annotated[list[ShortText], msgspec.Meta(max_length=MAX_STOP_STRINGS)] = []  # the gateway looks for these strings
    stop_tokens: Annotated[list[int], msgspec.Meta(max_length=MAX_STOP_TOKENS)] = []  # ids that end the answer
    include_stop_str_in_output: bool = False  # the stop string or stop token that ends the answer is a part of its text
    skip_special_tokens: bool = True  # their text is not shown
    # So many last tokens of the prompt count. -1: as many as have room beside `max_tokens`. None: all must fit.
    truncate_prompt_tokens: Annotated[int, msgspec.Meta(ge=-1, le=NO_TOKEN_LIMIT)] | None = None
    ignore_eos: bool = False  # admission adds the model's end tokens to `stop_tokens` unless this is set
    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 0  # the smaller number runs first
    # Seconds from its arrival: if it is not finished by then, it ends with the code "deadline". None: the server's limit alone.
    deadline_s: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    speculation: bool = True  # draft tokens may be used
    grammar: Grammar | None = None  # the whole answer matches it, unless another limit ends it before; None: any text
    logit_bias: Annotated[dict[ShortText, Bias], msgspec.Meta(max_length=MAX_BIASED_TOKENS)] = {}  # by id, as text
    # No other ids are sampled. None: all may be.
    allowed_token_ids: Annotated[list[TokenId], msgspec.Meta(min_length=1, max_length=MAX_ALLOWED_TOKENS)] | None = None
    bad_words: Annotated[list[ShortText], msgspec.Meta(max_length=MAX_BAD_WORDS)] = []  # are not generated
    # The tokens of `bad_words`, made by admission: the last token of each is not sampled after the ones before it.
    bad_tokens: Annotated[list[list[TokenId]], msgspec.Meta(max_length=MAX_BAD_SEQUENCES)] = []
    prompt_logprobs: TopWanted = -1  # -1: none; n: of the prompt's tokens, and of the top n at each place
    trace_id: TraceId = NO_TRACE  # of a distributed trace (W3C Trace Context); HTTP clients give it as the header `traceparent`
    caller: CallerId = b""  # who has sent the request: a digest, made where the request arrives
    # The scheduler may collect this many tokens before it sends them. The first and the last of an attempt are sent at once.
    group_tokens: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 1


SERVER_TERMS = frozenset(("group_tokens", "caller", "bad_tokens"))  # set by the gateway; clients cannot set them


class TermsOptions(TypedDict, total=False):
    """The terms that clients may set, as keyword arguments, for type checkers. A test compares them with `Terms`."""

    max_tokens: int | None  # None: to the end of the context
    min_tokens: int
    stop: list[str] | str
    stop_tokens: list[int]
    include_stop_str_in_output: bool
    skip_special_tokens: bool
    truncate_prompt_tokens: int | None
    ignore_eos: bool
    priority: int
    deadline_s: float | None
    speculation: bool
    grammar: Grammar | None
    logit_bias: dict[str, float]
    allowed_token_ids: list[int] | None
    bad_words: list[str]
    prompt_logprobs: int
    trace_id: bytes


class Suspicion(Part, frozen=True):
    """The deaths of gangs that one sequence may have caused. It goes with the sequence when it moves to another replica."""

    deaths: Count  # at which a step of the sequence was in flight
    certain: Count  # of these, the ones that no other sequence can have caused, in a row and without progress
    reach: Count  # tokens: once so many positions are computed, the sequence is free of suspicion
    passed: Count  # tokens: positions that were computed without a death


class Submit(Message, frozen=True):
    """Submits one sequence: prompt tokens, followed by the generated tokens that the gateway already has."""

    attempt: Count  # unique per gateway; a late answer to an older attempt is recognised and dropped
    request: ShortText
    tokens: Int32s  # prompt, then generated tokens
    n_prompt: Count  # how many of `tokens` are prompt
    sampling: Sampling
    terms: Terms  # limits count over all attempts: `max_tokens` includes the generated ones in `tokens`
    suspicion: Suspicion | None = None  # None: no gang has died with this sequence


class Taken(Message, frozen=True):
    """The scheduler has accepted this attempt."""

    attempt: Count


class Refused(Message, frozen=True):
    """The scheduler refuses this attempt. `retryable`: False if it can never run, True if it may be submitted again later."""

    attempt: Count
    code: Code
    detail: LongText
    retryable: bool


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
    endings: Annotated[list[Ending], msgspec.Meta(max_length=65_536)]
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
    """All attempts of one gateway that a scheduler has, about once a second: the gateway notices what either of them has lost.

    It comes after every `Tokens` up to `number`, and tells of every `Submit` up to the one of attempt `newest`. While `steps`,
    the number of steps that are done, stays the same, the replica computes nothing.
    """

    number: Count  # of the last Tokens message to this gateway
    newest: Count  # the highest attempt that has come from this gateway
    attempts: Int64s
    told: Int32s  # generated tokens of that attempt's sequence that the gateway has been sent, over all attempts
    steps: Count = 0

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


class ReplicaCondition(StrEnum):
    """Whether the gang of a replica can compute."""

    UP = "up"
    DOWN = "down"  # no gang, or one that is not ready
    SICK = "sick"  # its gang dies of a built-in step, so the device is at fault and no request


class Suspect(Part, frozen=True):
    """An attempt under suspicion."""

    attempt: Count
    suspicion: Suspicion


class ReplicaState(Message, frozen=True):
    """The condition of a scheduler's replica, sent to a gateway that appears and to all gateways when it changes.

    `since_s`: for how many seconds the condition has lasted. `suspects`: all attempts of this gateway that are under suspicion.
    """

    condition: ReplicaCondition
    since_s: float
    suspects: Annotated[list[Suspect], msgspec.Meta(max_length=65_536)] = []
