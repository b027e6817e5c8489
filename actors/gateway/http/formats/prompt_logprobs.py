"""Log probabilities of prompts as JSON, as OpenAI's completions (`echo`) and vLLM's `prompt_logprobs` have them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from actors.gateway.requests.request import GrowingSequence
from actors.gateway.text.detokenizer import texts_of
from actors.gateway.text.models.text_model import TextModel

_encode = msgspec.json.Encoder().encode
LOWEST_LOGPROB = -9999.0  # JSON has no minus infinity; OpenAI writes this


def finite(logprob: float) -> float:
    """A log probability as JSON can have it."""
    return logprob if math.isfinite(logprob) else LOWEST_LOGPROB


class EchoedLogprobs:
    """The `logprobs` object of completions for the tokens of one prompt. The first token has no log probability."""

    def __init__(self, sequence: GrowingSequence, model: TextModel) -> None:
        spec = sequence.spec
        self._model, self._wanted = model, spec.sampling.logprobs
        self._known, prompt = sequence.logprobs.prompt, spec.prompt_of(sequence.index)
        self._ids = prompt.tolist()
        lengths = map(len, texts_of(model.detokenizer(prompt[:0]), self._ids))
        self._offsets = list(accumulate(lengths, initial=0))

    @property
    def n_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self._ids)

    def part(self, first: int, stop: int) -> dict[str, list[Any]]:
        """The lists of tokens first .. stop - 1."""
        ids = self._ids[first:stop]
        places = range(first - 1, first - 1 + len(ids))
        return {
            "tokens": [self._model.text_of(token)[0] for token in ids],
            "token_logprobs": [self._chosen(place) for place in places],
            "top_logprobs": [self._top(place) for place in places],
            "text_offset": self._offsets[first : first + len(ids)],
        }

    def _chosen(self, place: int) -> float | None:
        return None if place < 0 or self._known is None else finite(float(self._known.logprobs.chosen[place]))

    def _top(self, place: int) -> dict[str, float] | None:
        if place < 0 or self._known is None:
            return None
        known = self._known.logprobs
        return likeliest_texts(self._model, known.top_of(place, self._wanted), self._ids[place + 1], float(known.chosen[place]))


def likeliest_texts(
    model: TextModel, likeliest: Sequence[tuple[int, float]], token: int, logprob: float
) -> dict[str, float] | None:
    """An entry of `top_logprobs` of the completions API: the likeliest tokens and `token`, which is there in any case, so there
    may be one more than was asked for. Of equal texts the likeliest counts. None if no others were asked for."""
    found: dict[str, float] = {}
    for one, its_logprob in [*likeliest, (token, logprob)] if likeliest else ():
        found.setdefault(model.text_of(one)[0], finite(its_logprob))
    return found or None


def _prompt_logprobs(sequence: GrowingSequence, model: TextModel, span: int) -> Iterator[bytes]:
    """vLLM's `prompt_logprobs`: null for the first token, then an object for each place: by token id, of the prompt's token and
    of the most probable ones. `span`: places in one piece; an empty piece comes after each."""
    known, spec = sequence.logprobs.prompt, sequence.spec
    yield b"[null"
    for first in range(0, known.n_tokens if known is not None else 0, span):
        assert known is not None
        ids = spec.prompt_of(sequence.index)[1 + first : 1 + first + span].tolist()
        places: list[bytes] = []
        for place, token in enumerate(ids, first):
            entry = {str(token): _entry(model, token, float(known.logprobs.chosen[place]), int(known.ranks[place]))}
            for rank, (top, logprob) in enumerate(known.logprobs.top_of(place, spec.shown_prompt_logprobs), 1):
                entry.setdefault(str(top), _entry(model, top, logprob, rank))
            places.append(b"," + _encode(entry))
        yield b"".join(places)
        yield b""
    yield b"]"


def _entry(model: TextModel, token: int, logprob: float, rank: int) -> dict[str, Any]:
    return {"logprob": finite(logprob), "rank": rank, "decoded_token": model.text_of(token)[0]}


def prompt_fields(sequence: GrowingSequence, model: TextModel, span: int) -> Iterator[bytes]:
    """vLLM's fields about a prompt, as far as they are asked for, each after a comma. `span`: as in `_prompt_logprobs`."""
    spec = sequence.spec
    if spec.shown_prompt_logprobs >= 0:
        yield b',"prompt_logprobs":'
        yield from _prompt_logprobs(sequence, model, span)
    if spec.with_token_ids:
        yield b',"prompt_token_ids":' + _encode(spec.prompt_of(sequence.index).tolist())


def token_ids(sequence: GrowingSequence, some: slice, *, with_prompt: bool) -> bytes:
    """vLLM's `token_ids` of generated tokens, and `prompt_token_ids` before it, each after a comma."""
    spec = sequence.spec
    prompt = b',"prompt_token_ids":' + _encode(spec.prompt_of(sequence.index).tolist()) if with_prompt else b""
    return prompt + b',"token_ids":' + _encode(sequence.ids[some] if spec.has_answer else [])
