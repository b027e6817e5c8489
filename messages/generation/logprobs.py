"""Log probabilities of tokens: the structs that carry them from the ranks to the client, for answers and for prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
import numpy as np

from messages.limits import MAX_SEQUENCES
from messages.wire.arrays import EMPTY_F32, EMPTY_I32, Float32s, Int32s, check_arrays
from messages.wire.message import Count, Part

MAX_TOP_LOGPROBS = 20
# -1: no log probabilities; n: that of the token itself, and of the n most probable ones
TopWanted = Annotated[int, msgspec.Meta(ge=-1, le=MAX_TOP_LOGPROBS, examples=[2])]


class TokenLogprobs(Part, frozen=True):
    """Log probabilities of n tokens, and of the `width` most probable tokens at the position of each, the likeliest first.

    They come from the model's raw distribution, before penalties, temperature and filters, as in OpenAI's API and vLLM.
    """

    chosen: Float32s = EMPTY_F32  # [n]; NaN where not asked for
    width: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] = 0
    top_ids: Int32s = EMPTY_I32  # [n * width], token by token; -1 where not asked for
    top: Float32s = EMPTY_F32  # [n * width]; NaN where not asked for

    def __post_init__(self) -> None:
        check_arrays(self)
        n_top = len(self.chosen) * self.width
        for name in ("top_ids", "top"):
            if len(getattr(self, name)) != n_top:
                raise ValueError(f"{name}: expected {n_top} items, got {len(getattr(self, name))}")

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.chosen)

    def part(self, start: int, stop: int) -> TokenLogprobs:
        """The log probabilities of tokens start .. stop - 1."""
        top = slice(start * self.width, stop * self.width)
        return TokenLogprobs(chosen=self.chosen[start:stop], width=self.width, top_ids=self.top_ids[top], top=self.top[top])

    def top_of(self, index: int, most: int = MAX_TOP_LOGPROBS) -> list[tuple[int, float]]:
        """(id, log probability) of at most `most` top tokens at the position of token `index`."""
        start = index * self.width
        row = slice(start, start + min(self.width, most))
        pairs = zip(self.top_ids[row].tolist(), self.top[row].tolist(), strict=True)
        return [(token, logprob) for token, logprob in pairs if token >= 0]


class PromptLogprobs(Part, frozen=True):
    """Log probabilities of n tokens of one prompt: of tokens first + 1, first + 2, ..., each after all tokens before it.

    The first token of a prompt has none. A token's rank is 1 plus the number of tokens that are more probable.
    """

    owner: Count  # whose prompt: a slot in a Result, an attempt in a Tokens, 0 where there is one prompt
    first: Count  # the position after which the first of these tokens stands
    logprobs: TokenLogprobs
    ranks: Int32s  # [n]

    def __post_init__(self) -> None:
        check_arrays(self)
        if len(self.ranks) != self.logprobs.n_tokens:
            raise ValueError(f"ranks: expected {self.logprobs.n_tokens} items, got {len(self.ranks)}")

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.ranks)

    def of(self, owner: int, start: int = 0) -> PromptLogprobs:
        """The log probabilities after the first `start` tokens, for another owner."""
        rest = self.logprobs.part(start, self.n_tokens)
        return PromptLogprobs(owner=owner, first=self.first + start, logprobs=rest, ranks=self.ranks[start:])


PromptParts = Annotated[list[PromptLogprobs], msgspec.Meta(max_length=MAX_SEQUENCES)]


def place_logprobs(n_tokens: int, parts: Iterable[tuple[int, TokenLogprobs]]) -> TokenLogprobs:
    """Log probabilities of `n_tokens` tokens. `parts`: (index of the first token, its part) for the tokens that have any.

    All tokens get the width of the widest part; missing values are NaN, missing ids -1.
    """
    parts = list(parts)
    width = max((part.width for _, part in parts), default=0)
    chosen = np.full(n_tokens, np.nan, "<f4")
    top_ids = np.full((n_tokens, width), -1, "<i4")
    top = np.full((n_tokens, width), np.nan, "<f4")
    for start, part in parts:
        rows = slice(start, start + part.n_tokens)
        chosen[rows] = part.chosen
        top_ids[rows, : part.width] = part.top_ids.reshape(part.n_tokens, part.width)
        top[rows, : part.width] = part.top.reshape(part.n_tokens, part.width)
    return TokenLogprobs(chosen=chosen, width=width, top_ids=top_ids.ravel(), top=top.ravel())


def join_logprobs(parts: Sequence[TokenLogprobs]) -> TokenLogprobs:
    """The log probabilities of all parts, one part after the other."""
    starts = np.cumsum([0, *(part.n_tokens for part in parts)]).tolist()
    return place_logprobs(starts[-1], zip(starts, parts, strict=False))


def join_prompt(parts: Sequence[PromptLogprobs]) -> PromptLogprobs:
    """All parts of one prompt as one. `parts`: one or more, the first from position 0 on, each after the one before."""
    joined = join_logprobs([part.logprobs for part in parts])
    return PromptLogprobs(owner=0, first=0, logprobs=joined, ranks=np.concatenate([part.ranks for part in parts]))
