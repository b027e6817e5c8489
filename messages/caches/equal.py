"""Messages about answers that are kept for equal requests: gateways and the cache directory tell each other which they have.

All of them are hints: a lost one costs a hit. Only a reset is answered and sent again, as that of pages is.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.limits import PageShare
from messages.outcomes import EndReason
from messages.wire.arrays import EMPTY_I32, Int32s
from messages.wire.message import CallerId, Count, Message, Part

MAX_ANSWER_TOKENS = 4096  # of one answer: its text is made in one turn of the event loop, 5 us a token
PROMPT_START_BYTES = 1024  # 256 tokens, int32 little-endian

Fingerprint = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]  # a digest of all that decides an answer
_Start = Annotated[bytes, msgspec.Meta(max_length=PROMPT_START_BYTES)]
_Ids = Annotated[bytes, msgspec.Meta(max_length=4 * MAX_ANSWER_TOKENS)]


class KeptSequence(Part, frozen=True):
    """One sequence of an answer. `ids`: its tokens, int32 little-endian. `n_cached`: prompt tokens that needed no prefill."""

    ids: _Ids
    reason: EndReason
    n_cached: Count = 0


class KeptAnswer(Part, frozen=True):
    """The sequences of one answer, in order. `scope`: `Terms.cache_scope` of its request, which was accepted at `began_s` and
    whose prompts begin with `starts`. It was kept at `since_s`. Both are Unix times. `model`: the number of the served model
    that gave it (`messages/ids.py`). `cache_share`: the term of its request, the part of a cache that answers of its scope may
    take."""

    sequences: tuple[KeptSequence, ...]
    key: Fingerprint = bytes(16)
    scope: CallerId = b""
    starts: tuple[_Start, ...] = ()
    began_s: float = 0.0
    since_s: float = 0.0
    model: Count = 0
    cache_share: PageShare = 1.0


class AnswersKept(Message, frozen=True):
    """The sender keeps these answers. `used`: keys of those that it has found since it last said so."""

    answers: tuple[KeptAnswer, ...] = ()
    used: tuple[Fingerprint, ...] = ()


class ForgetAnswers(Message, frozen=True):
    """An operator wants kept answers forgotten: the fields are those of `ForgetPages`, and `model` is the number of the served
    model that gave them, -1 for any. A gateway sends it to the directory until it is answered; the directory passes it on to
    the others, behind the answers that it has told them of."""

    call: Count
    scope: CallerId | None = None
    tokens: Int32s = EMPTY_I32
    older_than_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    model: Annotated[int, msgspec.Meta(ge=-1)] = -1


class AnswersForgotten(Message, frozen=True):
    """The directory's answer to `ForgetAnswers`: so many for equal requests and for similar questions were forgotten."""

    call: Count
    equal: Count
    similar: Count
