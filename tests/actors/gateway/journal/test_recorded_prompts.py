"""A request with log probabilities of its prompt is written again as a whole while some of its sequences have no token."""

from __future__ import annotations

import msgspec
import numpy as np

from actors.gateway.journal.records import Recovered, decode_states, request_record, states_of
from actors.gateway.journal.restore import restore
from actors.gateway.requests.request import Request
from actors.gateway.requests.stream_items import PING_ITEM
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.wire.arrays import int32s
from tests.support.gateway.journal_file import IDENTITY
from tests.support.gateway.request_examples import request_of, spec_of


def echoing(n: int) -> Request:
    """A request of `n` sequences for the two tokens of a prompt, and the log probability of the second one."""
    spec = spec_of(n)
    return request_of(
        msgspec.structs.replace(spec, is_resumable=True, terms=msgspec.structs.replace(spec.terms, prompt_logprobs=0))
    )


def of_prompt() -> PromptLogprobs:
    logprobs = TokenLogprobs(chosen=np.array([-0.5], "<f4"), width=0, top_ids=int32s([]), top=np.zeros(0, "<f4"))
    return PromptLogprobs(owner=0, first=0, logprobs=logprobs, ranks=int32s([1]))


def recorded(request: Request) -> Request:
    """The request that the next process reads from its whole record."""
    record = request_record(request, IDENTITY, 1.0)
    recovered = Recovered(request.number, request.spec, decode_states(record.states), identity=IDENTITY)
    return restore(recovered, HashChainText(), 2.0)


def test_one_sequence_has_begun_and_another_has_not() -> None:
    request = echoing(2)
    begun = request.sequences[0]
    begun.add_prompt_logprobs(of_prompt())
    assert begun.accept(0, [7, 8]) == 2
    begun.publish(2, False)
    again = recorded(request)
    assert [sequence.ids for sequence in again.sequences] == [[7, 8], []]
    assert [sequence.logprobs.n_of_prompt for sequence in again.sequences] == [1, 0]
    later = again.sequences[1]
    later.add_prompt_logprobs(of_prompt())
    assert later.accept(0, [9]) == 1


def test_a_ping_comes_before_the_first_token() -> None:
    request = echoing(1)
    request.show_ping()
    again = recorded(request)
    assert (again.sequences[0].ids, list(again.stream_items)) == ([], [PING_ITEM])


def test_a_part_of_the_prompt_has_come() -> None:
    """It is not recorded: the next attempt tells all of it."""
    request = echoing(2)
    request.sequences[1].add_prompt_logprobs(of_prompt())
    assert [state.row.prompt for state in states_of(request)] == [None, None]
