"""An event with the log probabilities of a whole prompt takes as long as thousands of others: a turn makes one of them."""

from __future__ import annotations

import msgspec
import numpy as np

from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.openai_split import chunk_writer
from actors.gateway.requests.request import Request
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.wire.arrays import int32s
from tests.support.gateway.request_examples import request_of, spec_of

N_SEQUENCES = 3
MODEL = HashChainText()


def logprobs_of(n_tokens: int) -> TokenLogprobs:
    return TokenLogprobs(chosen=np.full(n_tokens, -0.5, "<f4"), width=0, top_ids=int32s([]), top=np.zeros(0, "<f4"))


def echoing() -> Request:
    """A stream of several sequences, of which each shows its prompt, with log probabilities, before its first token."""
    spec = spec_of(N_SEQUENCES, logprobs=0)
    terms = msgspec.structs.replace(spec.terms, prompt_logprobs=0)
    return request_of(msgspec.structs.replace(spec, api="completion", is_resumable=True, echo=["ab"], terms=terms))


def show(request: Request) -> None:
    """Two tokens of each sequence become visible, the first ones before the second ones."""
    for nth in range(2):
        for sequence in request.sequences:
            if not nth:
                sequence.add_prompt_logprobs(PromptLogprobs(owner=0, first=0, logprobs=logprobs_of(1), ranks=int32s([1])))
            sequence.accept(nth, [nth + 7], logprobs_of(1))
            sequence.publish(nth + 1, False)


def test_a_turn_makes_one_event_with_a_prompt() -> None:
    request = echoing()
    some, whole = (StreamEvents(request, chunk_writer(request, "model", MODEL)) for _ in range(2))
    assert some.take_few() is None
    assert some.take_some() == []
    show(request)
    assert some.take_few() is None, "the task of the stream makes them"
    turns = list[list[bytes]]()
    while some.has_more:
        turns.append(some.take_some())
    assert [len(turn) for turn in turns] == [1, 1, 1, N_SEQUENCES]
    assert [b'"text":"ab7 "' in turn[0] for turn in turns] == [True, True, True, False]
    assert [event for turn in turns for event in turn] == whole.take()
