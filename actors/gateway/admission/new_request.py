"""A request that the HTTP or the ZeroMQ API has parsed, not yet checked or tokenised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from actors.gateway.answer_cache.cache_use import CacheUse
from actors.gateway.requests.request_spec import Api, BestOf, ResponseTerms
from actors.gateway.text.template_options import PLAIN, TemplateOptions
from actors.gateway.text.tools.offered import OfferedTools
from messages.generation.sampling import Sampling
from messages.generation.terms import NO_TOKEN_LIMIT, Terms
from messages.wire.trace_context import TraceContext


class Naming(Enum):
    """What it means when a client sends an id that a request has already."""

    FIXED = "fixed"  # it is that request, however it ended
    KEY = "key"  # it is that request; one that failed or was cancelled has no answer and is computed again


@dataclass(frozen=True)
class WantedReasoning:
    """How the reasoning in the answers is treated, if the model writes any. `is_split`: it is separated from the content."""

    is_split: bool = False
    is_shown: bool = True
    budget_tokens: int | None = None  # after so many tokens it ends
    budget_field: str = "thinking_token_budget"  # the name of the budget in the API of the client, for refusals


_DEFAULT_REASONING = WantedReasoning()


class NewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks for. Exactly one of `texts`, `ids` and `turns` is given.

    A struct, because a frozen dataclass with so many fields takes 10 us to make.
    """

    request: str  # the request's id: the client's own, or minted by the API
    api: Api
    sampling: Sampling
    terms: Terms
    texts: Sequence[str] | None = None
    ids: Sequence[Sequence[int] | np.ndarray] | None = None
    turns: Sequence[Mapping[str, Any]] | None = None
    template: TemplateOptions = PLAIN  # for `turns`
    reasoning: WantedReasoning = _DEFAULT_REASONING
    defaulted: frozenset[str] = frozenset()  # parameters of `sampling` that the client has not given
    has_seed: bool = False  # the seed of `sampling` is the client's own
    cache_use: CacheUse = CacheUse.FULL  # of the cache of answers
    n: int = 1
    default_max_tokens: int = NO_TOKEN_LIMIT  # without a limit of the client's own; cut to what the context has left
    is_whole: bool = False  # not streamed: the client reads nothing before the request is over
    is_resumable: bool = False  # the client can ask for it again by its id
    ends_with_client: bool = False  # cancelled when its client leaves; another resumable one waits for it to come back
    naming: Naming = Naming.FIXED
    must_be_known: bool = False  # the client has read a part of the answer already
    digest: str = ""  # of a request whose client gives its id: the same id with another digest is another request
    answer_id: str = ""  # see `RequestSpec`
    correlation_id: str = ""  # the X-Request-Id of its client
    trace: TraceContext | None = None  # what its client says of its trace
    with_usage: bool = False  # its stream ends with an event of the usage
    tools: OfferedTools | None = None  # that the answer to `turns` may call
    with_running_usage: bool = False  # and every other event has the usage so far
    echo: bool = False  # the text of each prompt is repeated before its answers
    shown_prompt_logprobs: int = -1  # see `RequestSpec`, as the next two
    with_token_ids: bool = False
    has_answer: bool = True
    ignored_fields: str = ""  # names of unknown fields in its body, as the header X-Ignored-Fields has them
    model: str = ""  # empty: the served model, whatever its name
    best_of: BestOf | None = None  # of `n` answers to each prompt, the client sees only some
    response: ResponseTerms | None = None  # of a request of /v1/responses
    batch_size: int = 0  # see `RequestSpec`
    # the names of these fields in the API of the client, for refusals
    prompt_field: str = "prompt"
    max_tokens_field: str = "max_tokens"
    stop_field: str = "stop"
    request_field: str = "request"
    grammar_field: str = "grammar"
    n_field: str = "n"

    @property
    def n_sequences(self) -> int:
        """Sequences in all: prompts times `n`."""
        return (len(self.ids if self.ids is not None else self.texts or ()) or 1) * self.n
