"""An answer whose text a test has written, cut into tokens as the test likes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.registry import format_of
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api, Ended, RequestSpec, ResponseTerms
from actors.gateway.text.channels import Splitting
from actors.gateway.text.detokenizer import Detokenizer
from actors.gateway.text.models.hash_chain_text import HashChainText
from actors.gateway.text.reasoning_text import ReasoningMarks
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

THINK = Splitting(reasoning=ReasoningMarks("<think>", "</think>"))
OPEN_THINK = Splitting(reasoning=ReasoningMarks("<think>", "</think>", is_open=True))
MODEL = HashChainText()


class _Written(Detokenizer):
    """Token i has the text number i."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def push(self, token: int) -> str:
        return self._texts[token]

    def flush(self) -> str:
        return ""


def written(
    texts: Sequence[str],
    api: Api,
    splitting: Splitting | None,
    ended: Ended | None = None,
    response: ResponseTerms | None = None,
) -> Request:
    """A request that is over, with one answer of one token for each text."""
    spec = RequestSpec(
        request="r",
        api=api,
        created_s=1e9,
        prompts=[np.array([1, 2], "<i4").tobytes()],
        sampling=Sampling(),
        terms=Terms(max_tokens=1000),
        is_resumable=True,
        splitting=splitting,
        response=response,
    )
    request = Request(7, spec, lambda prompt: _Written(texts), 0.0)
    request.is_recorded, sequence = True, request.sequences[0]
    sequence.accept(0, range(len(texts)))
    sequence.end(ended or Ended(reason="stop"))
    sequence.publish(len(texts), True)
    request.n_open = 0
    return request


def events_of(request: Request, start: int = 0) -> list[bytes]:
    """The events of its stream after the one with number `start`."""
    return StreamEvents(request, format_of(request.spec.api).stream(request, "model", MODEL), start).take()


def body_of(request: Request) -> bytes:
    """Its answer as one body."""
    return b"".join(format_of(request.spec.api).whole(request, "model", MODEL))
