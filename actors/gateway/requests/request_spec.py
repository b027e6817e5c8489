"""A validated, tokenised request. The journal records it when it is admitted; its tokens depend on nothing else."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
import numpy as np

from actors.gateway.text.channels import Splitting
from messages.generation.sampling import Sampling
from messages.generation.sequences import Ending, Work
from messages.generation.terms import Terms
from messages.outcomes import FAILURES, Code, EndReason, NoCode
from messages.wire.trace_context import TraceContext, traceparent_of

Api = Literal["chat", "completion", "generate", "zeromq", "ollama_chat", "ollama_generate", "messages", "responses"]
# terms without effect on the tokens and the text of an answer
TERMS_WITHOUT_EFFECT = (
    "priority", "deadline_s", "ttft_ms", "deadline_ms", "speculation", "trace_id", "group_tokens", "weight", "page_share",
    "cache_share", "allow_fallback",
)  # fmt: skip
_SAFE_IN_HEADERS = " /:@+,;()=._~-"  # in names of models
_TELLING_TIMES: tuple[Api, ...] = ("ollama_chat", "ollama_generate")
_SEED_STRIDE = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads the seeds of neighbouring sequences
_SEED_MASK = 2**63 - 1
_CODE_BY_REASON: dict[EndReason, Code] = {"failed": "internal", "quarantined": "quarantined"}  # if the scheduler gives none


class ResponseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a request of /v1/responses has beside the others: what its answers repeat, and whether they are kept."""

    shown: bytes  # JSON: an object with the fields of the request that its answers repeat
    items: bytes  # JSON: the list of input items, those of the responses before it and their answers included
    is_stored: bool = True  # clients can ask for it, and go on with it, until its retention is over
    is_background: bool = False  # it goes on without a client


class BestOf(msgspec.Struct, frozen=True, kw_only=True):
    """Of the answers to each prompt, only the likeliest are shown."""

    n_shown: int
    shows_logprobs: bool  # False: they are computed for the choice alone


class RequestSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one client: `n` sequences for each of its prompts."""

    request: str
    api: Api
    created_s: float  # Unix time
    prompts: list[bytes]  # int32 little-endian token ids of each prompt
    sampling: Sampling
    terms: Terms
    n: int = 1
    is_whole: bool = False  # not streamed: its client reads nothing before it is over
    is_resumable: bool = False  # its client can ask for it again by its id
    ends_with_client: bool = False  # cancelled when its client leaves; another resumable one waits for it to come back
    digest: str = ""  # equal if the same request is sent again; the same id with another digest is refused
    answer_id: str = ""  # the `id` in its answers, if that is another one: its key in the form of the API's ids
    correlation_id: str = ""  # the X-Request-Id of its client: answers and log lines repeat it, and it identifies nothing
    with_usage: bool = False  # its stream ends with an event of the usage
    with_running_usage: bool = False  # and every other event has the usage so far
    echo: list[str] = []  # prompts to repeat before their answers, or none
    shown_prompt_logprobs: int = -1  # most probable tokens to show at each place of the prompts; -1: nothing of that kind
    with_token_ids: bool = False  # the ids of prompt and answer are shown
    has_answer: bool = True  # False: only the prompts are of interest. One token is computed for each, and not shown.
    ignored_fields: str = ""  # names of unknown fields in its body, as the header X-Ignored-Fields has them
    response: ResponseTerms | None = None  # of a request of /v1/responses
    fingerprint: str = ""  # what answers tell as `system_fingerprint`: of the model and what else decides the exact tokens
    splitting: Splitting | None = None  # how the text of its answers is split into channels; None: it is not

    best_of: BestOf | None = None  # None: all answers are shown
    is_from_cache: bool = False  # its answer was kept from an equal request
    is_coalesced: bool = False  # an equal request was being computed, and it got the tokens of that one
    similarity: float = 0.0  # of its question and the one whose kept answer it got; 0: it got none of that kind
    degraded: str = ""  # what the load of the server has changed in it, as the header X-Degraded has it; "": nothing
    queue_wait_ms: int = 0  # when it came, what waited before it was expected to take so long
    limit_headers: dict[str, str] = {}  # what its answers tell of the limits of its tenant, as HTTP headers
    model: int = 0  # the number of the model that answers; see `ServedModels`
    model_name: str = ""  # what its answers call this model, however it is called later; "": of the last release, unknown
    fallback: str = ""  # the name of this model, if it answers instead of the main one
    batch_size: int = 0  # of the first request of a batch of full requests: how many it has; 0: of any other one
    trace: TraceContext | None = None  # what its client says of its trace, and its own span; None: neither

    def told_model(self, name: str) -> str:
        """What its answers call the model. `name`: its present one, for a request of the last release."""
        return self.model_name or name

    @property
    def shows_logprobs(self) -> bool:
        """True if its answers have log probabilities."""
        return self.sampling.logprobs >= 0 and (self.best_of is None or self.best_of.shows_logprobs)

    @property
    def cache_status(self) -> Literal["", "hit", "coalesced", "semantic"]:
        """What its answers have as the header X-Cache; "": it was computed, and they have none."""
        if self.is_coalesced:
            return "coalesced"
        if self.similarity:
            return "semantic"
        return "hit" if self.is_from_cache else ""

    @property
    def shown_similarity(self) -> str:
        """What its answers have as the header X-Cache-Similarity, rounded down."""
        return f"{int(self.similarity * 1000) / 1000:.3f}"

    @property
    def shown_wait_ms(self) -> int:
        """What its answers have as the header X-Queue-Wait-Ms; 0: they have none. What is not computed does not wait."""
        return 0 if self.cache_status else self.queue_wait_ms

    @property
    def shown_fallback(self) -> str:
        """What its answers have as the header X-Fallback-Model; "": they have none."""
        return quote(self.fallback, safe=_SAFE_IN_HEADERS)

    @property
    def trace_headers(self) -> dict[str, str]:
        """What its answers have as the headers of W3C Trace Context; nothing if it is not traced."""
        if self.trace is None or not self.trace.span_id:
            return {}
        headers = {"traceparent": traceparent_of(self.terms.trace_id, self.trace.span_id)}
        return {**headers, "tracestate": self.trace.state} if self.trace.state else headers

    @property
    def is_stored(self) -> bool:
        """True for a response that clients can ask for by its id."""
        return self.response is not None and self.response.is_stored

    @property
    def is_background(self) -> bool:
        """True if it goes on without a client, however long it takes."""
        return self.response is not None and self.response.is_background

    @property
    def n_sequences(self) -> int:
        """Number of sequences: prompts times `n`."""
        return self.n * len(self.prompts)

    @property
    def tells_times(self) -> bool:
        """True if a stream of this request says at its end how long it took."""
        return self.api in _TELLING_TIMES

    @property
    def shown_id(self) -> str:
        """What the answers have in their header X-Request-Id: the client's own, or else the id of the request."""
        return self.correlation_id or self.request

    @property
    def id_in_answers(self) -> str:
        """What its answers have as their `id`."""
        return self.answer_id or self.request

    @property
    def log_fields(self) -> dict[str, str]:
        """Fields for log lines about this request: its id, and where it has them its client's X-Request-Id and trace id."""
        fields = {"request": self.request}
        if self.correlation_id:
            fields["x_request_id"] = self.correlation_id
        if self.terms.trace_id:
            fields["trace"] = self.terms.trace_id.hex()
        return fields

    def prompt_of(self, index: int) -> np.ndarray:
        """Prompt token ids of sequence `index`: int32 [n_prompt]."""
        return np.frombuffer(self.prompts[index // self.n], dtype="<i4")

    def sampling_of(self, index: int) -> Sampling:
        """Sampling of sequence `index`: the first of each prompt has the request's seed, the others derived ones."""
        nth = index % self.n
        if nth == 0:
            return self.sampling
        return msgspec.structs.replace(self.sampling, seed=(self.sampling.seed + nth * _SEED_STRIDE) & _SEED_MASK)


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one ending of one sequence. Its times are 0 where no answer tells them (`RequestSpec.tells_times`)."""

    reason: EndReason
    n_cached: Annotated[int, msgspec.Meta(ge=0)] = 0
    code: Code | NoCode = ""  # why it failed
    detail: str = ""
    retry_after_s: float = 0.0  # of a failure: after this time the client may ask again; 0: that does not help
    work: Work | None = None  # what the last attempt has taken; None: the gateway has ended it, or its scheduler did not say
    first_token_s: float = 0.0  # from the admission until the first token could be seen; 0: none could be before the ending
    lasted_s: float = 0.0  # from the admission to this ending

    @property
    def is_failure(self) -> bool:
        """True if the server failed to finish the sequence."""
        return self.reason in FAILURES


def ended_by(ending: Ending, n_cached: int) -> Ended:
    """The ending that a scheduler has sent. `n_cached`: prompt tokens that needed no prefill. A failure always has a code."""
    code: Code | NoCode = ending.code or _CODE_BY_REASON.get(ending.reason, "")
    return Ended(reason=ending.reason, n_cached=n_cached, code=code, detail=ending.detail, work=ending.work)


def model_changed(*, has_same_model: bool = False) -> Ended:
    """The ending of a request that was accepted for another model than the one that is served now. `has_same_model`: the model
    is the same, but not its numerics, and the answer was promised to be exact."""
    what = "other numerics (dtype, ranks, devices or kernels), and this answer is exact" if has_same_model else "another model"
    return Ended(reason="failed", code="model_changed", detail=f"the server was started again with {what}")
