"""How the next token is chosen: the sampling parameters of a request."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from messages.generation.logprobs import TopWanted
from messages.wire.message import Seed, StrictPart

MAX_TOP_K = 2**31 - 1
Temperature = Annotated[float, msgspec.Meta(ge=0.0, le=100.0, examples=[0.8])]
TopP = Annotated[float, msgspec.Meta(gt=0.0, le=1.0, examples=[0.9])]
TopK = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_K, examples=[20])]


class Sampling(StrictPart, frozen=True):
    """How the next token is chosen. `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 are off.

    The noise of position p is a function of (seed, p) alone: never of the batch, of the attempt or of drafts. The example of a
    parameter is a value with which it is in use.
    """

    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: Annotated[float, msgspec.Meta(ge=0.0, le=1.0, examples=[0.05])] = 0.0  # as a share of the greatest probability
    seed: Seed = 0
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2.0, le=2.0, examples=[0.1])] = 0.0
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2.0, le=2.0, examples=[0.1])] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=10.0, examples=[1.1])] = 1.0
    # -1: none; n: the chosen token's and the top n
    logprobs: TopWanted = -1


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
