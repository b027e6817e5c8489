"""Messages about answers to similar questions, which the cache directory keeps for all gateways.

A lost message costs a hit. `ForgetAnswers` is for these answers too.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.limits import PageShare
from messages.outcomes import EndReason
from messages.wire.arrays import EMPTY_I32, Float32s, Int32s
from messages.wire.message import CallerId, Count, Message

Circle = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]  # a digest of all that two requests must have in common
Similarity = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]  # the cosine of two vectors


class FindSimilar(Message, frozen=True):
    """A gateway asks for the answer to the most similar question of a circle, if it is as similar as `least`."""

    query: Count
    circle: Circle
    vector: Float32s  # of its question
    least: Similarity


class SimilarFound(Message, frozen=True):
    """The answer to FindSimilar: the tokens of a kept answer, if there is one, and how similar its question is."""

    query: Count
    has_answer: bool = False
    similarity: Similarity = 0.0
    ids: Int32s = EMPTY_I32
    reason: EndReason = "stop"


class KeepSimilar(Message, frozen=True):
    """The answer to a question. `scope`: `Terms.cache_scope` of its request; `start`: the beginning of its prompt, for resets;
    `began_s`: Unix time at which it was accepted; `cache_share`: its term."""

    circle: Circle
    vector: Float32s
    ids: Int32s
    reason: EndReason
    scope: CallerId
    start: Int32s
    began_s: float
    cache_share: PageShare = 1.0
