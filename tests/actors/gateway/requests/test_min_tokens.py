"""min_tokens: before it no stop token and no stop string ends an answer, in every API and after a death of the scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.detokenizer import NumberText
from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.errors import InvalidRequest
from messages.generation.terms import Terms
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.request_examples import request_of, spec_of
from tests.support.gateway.whole_server import ask, n_visible, prompt_number, start_scheduler, wait_all, whole_server
from tests.support.gateway.zmq_clients import zmq_rig

VOCABULARY = 32_768
ENDED_BY_LENGTH = Ended(reason="length")
LENGTH, FEWEST = 40, 25


def sequence_of(min_tokens: int, *stop: str) -> GrowingSequence:
    terms = Terms(max_tokens=1000, min_tokens=min_tokens, stop=list(stop))
    return request_of(msgspec.structs.replace(spec_of(), terms=terms)).sequences[0]


def shown(sequence: GrowingSequence) -> str:
    return "".join(sequence.texts) + sequence.tail


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 20), st.data())
def test_a_stop_string_counts_only_behind_min_tokens_however_the_tokens_come(
    ids: list[int], min_tokens: int, data: st.DataObject
) -> None:
    sequence, at = sequence_of(min_tokens, "2 3"), 0
    while at < len(ids):
        n = data.draw(st.integers(1, len(ids) - at))
        sequence.accept(at, ids[at : at + n])
        at += n
    exempt, rest = ids_text(ids[:min_tokens]), ids_text(ids[min_tokens:])
    is_met = "2 3" in rest
    assert (sequence.ended is not None) == is_met
    if is_met:
        assert shown(sequence) == exempt + rest.partition("2 3")[0]


def test_text_that_comes_with_the_ending_is_looked_at_only_behind_min_tokens() -> None:
    class Late(NumberText):
        def push(self, token: int) -> str:
            return ""

        def flush(self) -> str:
            return "the end"

    for min_tokens, reason, text in ((2, "length", "the end"), (1, "stop", "the ")):
        request = request_of(msgspec.structs.replace(spec_of(), terms=Terms(max_tokens=2, min_tokens=min_tokens, stop=["end"])))
        sequence = GrowingSequence(request, 0, Late())
        sequence.accept(0, [5, 6])
        sequence.end(ENDED_BY_LENGTH)
        assert sequence.ended is not None
        assert (sequence.ended.reason, shown(sequence)) == (reason, text)


async def test_more_than_may_be_generated_is_refused_by_name() -> None:
    async with zmq_rig(max_length=64) as (r, _), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        await r.add_scheduler()
        for fields, most in (({"max_tokens": 5, "min_tokens": 6}, "5"), ({"max_tokens": 5, "min_tokens": -1}, "0")):
            answer = await http.post("/v1/completions", json={"prompt": [1, 2], **fields})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "min_tokens")
            assert most in answer.json()["error"]["message"]
        with pytest.raises(InvalidRequest, match="min_tokens: expected at most 62"):
            await client.generate([1, 2], min_tokens=63)
        with pytest.raises(InvalidRequest, match="min_tokens: expected"):
            await client.generate([1, 2], min_tokens=-1)
        assert (await client.generate([1, 2], max_tokens=5, min_tokens=5, temperature=0.0)).tokens == oracle([1, 2], 5)


def expected(tokens: list[int], stop: int) -> list[int]:
    """What the hash chain generates when `stop` may end it from token FEWEST on."""
    ids = hash_chain_tokens(tokens, LENGTH, 0, VOCABULARY, {stop}, FEWEST)
    at = ids.index(stop) + 1 if stop in ids else LENGTH
    return ids[:at]


async def test_no_stop_token_comes_before_whoever_dies() -> None:
    async with whole_server() as (r, _), r.http() as http:
        fields: dict[str, Any] = {"min_tokens": FEWEST, "stream": False}
        stops = [oracle(prompt_number(number), 8)[7] for number in range(6)]
        answers = [ask(http, number, LENGTH, stop_token_ids=[stop], **fields) for number, stop in enumerate(stops)]
        await r.cluster.wait_until(lambda: n_visible(r.gateway) > 12)
        await r.cluster.kill("scheduler/0")
        await start_scheduler(r, 2)
        for number, (stop, answer) in enumerate(zip(stops, await wait_all(answers), strict=True)):
            ids = expected(prompt_number(number), stop)
            shown_ids = ids[:-1] if ids[-1] == stop else ids
            assert stop not in ids[:FEWEST]
            assert answer.json()["choices"][0]["text"] == ids_text(shown_ids)
            assert answer.json()["usage"]["completion_tokens"] == len(ids)
        short = [ask(http, number, LENGTH, stop_token_ids=[stop]) for number, stop in enumerate(stops)]
        assert [answer.json()["usage"]["completion_tokens"] for answer in await wait_all(short)] == [8] * len(stops)
