"""What a client asks for besides its prompt and its sampling parameters: the terms of a request."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from messages.generation.grammar import Grammar
from messages.generation.logprobs import TopWanted
from messages.limits import MAX_GROUP_TOKENS, PageShare, Priority, Weight
from messages.wire.message import NO_TRACE, CallerId, Part, ShortText, StrictPart, TraceId

MAX_STOP_STRINGS = 16
MAX_STOP_TOKENS = 64
MAX_BIASED_TOKENS = 1000
MAX_ALLOWED_TOKENS = 65_536
MAX_BAD_WORDS = 128
MAX_BAD_SEQUENCES = 2 * MAX_BAD_WORDS  # each word at the beginning of a text, and after a space
MAX_BAD_TOKENS = 4096  # of all of these together: every sequence of a request has them in each message that submits or plans it
NO_TOKEN_LIMIT = 2**31 - 1  # a `max_tokens` that means: up to the model's context length
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Bias = Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]

MaxTokens = Annotated[int, msgspec.Meta(ge=1, le=NO_TOKEN_LIMIT)]
DeadlineS = Annotated[float, msgspec.Meta(gt=0.0)]
Milliseconds = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]


class RankTerms(Part, frozen=True, omit_defaults=True):
    """The terms that ranks obey as they are. Each sequence brings them whole to its ranks (`NewSequence.terms`), so a term that
    is declared here needs no line in a message or in the scheduler. The example of a term is a value with which it is in use.

    Ranks get `grammar`, `prompt_logprobs` and the rules for single tokens in forms of their own, see `NewSequence`."""

    # generated before a stop token or stop string counts
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=NO_TOKEN_LIMIT, examples=[1])] = 0
    # ids that end the answer
    stop_tokens: Annotated[list[int], msgspec.Meta(max_length=MAX_STOP_TOKENS, examples=[[0]])] = []

    @property
    def banned_tokens(self) -> list[int]:
        """The ids that are not sampled before `min_tokens` tokens are generated."""
        return self.stop_tokens if self.min_tokens else []

    @property
    def used_tokens(self) -> list[int]:
        """Every id that a rank looks up for these terms. It refuses a plan with one that is outside of its vocabulary."""
        return self.banned_tokens


class Terms(RankTerms, StrictPart, frozen=True, forbid_unknown_fields=True):
    """What a client asks for besides its prompt and its `Sampling`. Carried whole from the API to the scheduler's sequence.
    Clients may set every term but those of `SERVER_TERMS`: a new field is offered by HTTP, ZeroMQ and the client library."""

    max_tokens: MaxTokens = NO_TOKEN_LIMIT  # generated tokens at most
    stop: Annotated[list[ShortText], msgspec.Meta(max_length=MAX_STOP_STRINGS)] = []  # the gateway looks for these strings
    include_stop_str_in_output: bool = False  # the stop string or stop token that ends the answer is a part of its text
    skip_special_tokens: bool = True  # their text is not shown
    # The prompt is cut to its last so many tokens. -1: to as many as have room beside `max_tokens`. None: all must fit.
    truncate_prompt_tokens: Annotated[int, msgspec.Meta(ge=-1, le=NO_TOKEN_LIMIT)] | None = None
    ignore_eos: bool = False  # admission adds the model's end tokens to `stop_tokens` unless this is set
    priority: Priority = 0  # the smaller number runs first
    # Seconds from its arrival: if it is not finished by then, it ends with the code "deadline". None: the server's limit alone.
    deadline_s: DeadlineS | None = None
    # Milliseconds from its arrival in which the first token, or the whole answer, is wanted. The policy `sla` plans by them,
    # and by `deadline_s` if there is no `deadline_ms`; nothing ends when they have passed. None: no such wish.
    ttft_ms: Milliseconds | None = None
    deadline_ms: Milliseconds | None = None
    speculation: bool = True  # draft tokens may be used
    allow_fallback: bool = True  # the fallback model may answer while the main one has no ready replica
    grammar: Grammar | None = None  # the whole answer matches it, unless another limit ends it before; None: any text
    logit_bias: Annotated[dict[ShortText, Bias], msgspec.Meta(max_length=MAX_BIASED_TOKENS)] = {}  # by id, as text
    # No other ids are sampled. None: all may be.
    allowed_token_ids: Annotated[list[TokenId], msgspec.Meta(min_length=1, max_length=MAX_ALLOWED_TOKENS)] | None = None
    bad_words: Annotated[list[ShortText], msgspec.Meta(max_length=MAX_BAD_WORDS)] = []  # are not generated
    # The tokens of `bad_words`, made by admission: the last token of each is not sampled after the ones before it.
    bad_tokens: Annotated[list[list[TokenId]], msgspec.Meta(max_length=MAX_BAD_SEQUENCES)] = []
    prompt_logprobs: TopWanted = -1  # -1: none; n: of the prompt's tokens, and of the top n at each place
    trace_id: TraceId = NO_TRACE  # of a distributed trace (W3C Trace Context); HTTP clients give it as the header `traceparent`
    # Cached prefixes and kept answers are shared only with requests of the same salt; "": with all that have none.
    cache_salt: ShortText = ""
    caller: CallerId = b""  # who has sent the request: a digest, made where the request arrives
    cache_scope: CallerId = b""  # the caller that they are shared with, where callers are told apart; b"": with all of them
    weight: Weight = 1.0  # of the caller beside other callers, where callers share a replica fairly
    page_share: PageShare = 1.0  # the part of a replica's pages that the sequences of the caller may hold
    cache_share: PageShare = 1.0  # the part of each cache that what is cached of the caller takes while others need room
    # The scheduler may collect this many tokens before it sends them. The first and the last of an attempt are sent at once.
    group_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUP_TOKENS)] = 1

    def of_ranks(self) -> RankTerms:
        """The part of these terms that ranks obey."""
        return RankTerms(**{name: getattr(self, name) for name in RankTerms.__struct_fields__})


# set by the gateway; clients cannot set them
SERVER_TERMS = frozenset(("group_tokens", "caller", "cache_scope", "bad_tokens", "weight", "page_share", "cache_share"))


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
    ttft_ms: float | None
    deadline_ms: float | None
    speculation: bool
    allow_fallback: bool
    grammar: Grammar | None
    logit_bias: dict[str, float]
    allowed_token_ids: list[int] | None
    bad_words: list[str]
    prompt_logprobs: int
    cache_salt: str
    trace_id: bytes
