"""Rules for single tokens over a death of the scheduler; kept stop strings, special tokens and cut prompts in every API."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.requests.request import GrowingSequence
from messages.client import AsyncClient
from messages.generation.terms import Terms
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.request_examples import request_of, spec_of
from tests.support.gateway.whole_server import ask, n_visible, start_scheduler, wait_all, whole_server
from tests.support.gateway.zmq_clients import zmq_rig

ALLOWED = {"allowed_token_ids": [97, 98, 8000, 16000, 24000], "bad_words": ["ab", "bb"], "logit_bias": {"97": 1}}
LENGTH = 60


async def test_rules_hold_whoever_dies() -> None:
    async with whole_server() as (r, _), r.http() as http:
        calm = await wait_all([ask(http, number, LENGTH, **ALLOWED) for number in range(6)])
        before = n_visible(r.gateway)
        answers = [ask(http, number, LENGTH, **ALLOWED) for number in range(6)]
        await r.cluster.wait_until(lambda: n_visible(r.gateway) > before + 12)
        await r.cluster.kill("scheduler/0")
        await start_scheduler(r, 2)
        for wanted, answer in zip(calm, await wait_all(answers), strict=True):
            text = answer.json()["choices"][0]["text"]
            assert text == wanted.json()["choices"][0]["text"]
            assert set(text.split()) <= {str(token) for token in ALLOWED["allowed_token_ids"]}
            assert "97 98 " not in text
            assert "98 98 " not in text
            assert len(text.split()) == LENGTH


def sequence_of(**terms: Any) -> GrowingSequence:
    return request_of(msgspec.structs.replace(spec_of(), terms=Terms(max_tokens=1000, **terms))).sequences[0]


@given(ids=st.lists(st.integers(0, 3), max_size=20), data=st.data())
def test_the_stop_that_ends_an_answer_is_shown_if_it_is_wanted(ids: list[int], data: st.DataObject) -> None:
    hidden = sequence_of(stop=["2 3"], stop_tokens=[0])
    kept = sequence_of(stop=["2 3"], stop_tokens=[0], include_stop_str_in_output=True)
    for sequence in (hidden, kept):
        at = 0
        while at < len(ids):
            n = data.draw(st.integers(1, len(ids) - at))
            sequence.accept(at, ids[at : at + n])
            at += n
    before, found, _ = ids_text(ids).partition("2 3")
    assert (kept.ended is not None) == bool(found)
    if found:
        assert "".join(kept.texts) + kept.tail == before + found
        assert kept.matched_stop == hidden.matched_stop == "2 3"
    assert "0" not in "".join(hidden.texts)


async def test_only_the_last_tokens_of_a_prompt_count() -> None:
    prompt = [5, 6, 7, 8]
    async with zmq_rig(max_length=64) as (r, _), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        await r.add_scheduler()
        for kept, wanted in ((2, [7, 8]), (9, prompt)):
            fields = {"max_tokens": 5, "temperature": 0, "truncate_prompt_tokens": kept}
            answer = (await http.post("/v1/completions", json={"prompt": prompt, **fields})).json()
            assert answer["choices"][0]["text"] == ids_text(oracle(wanted, 5))
            assert answer["usage"]["prompt_tokens"] == len(wanted)
            native = await client.generate(prompt, max_tokens=5, temperature=0.0, truncate_prompt_tokens=kept)
            assert native.tokens == oracle(wanted, 5)
        for body in ({"prompt": "x" * 500}, {"prompt": [3] * 70}):
            fields = {"max_tokens": 4, "temperature": 0, "truncate_prompt_tokens": -1}
            answer = (await http.post("/v1/completions", json=body | fields)).json()
            assert answer["usage"]["prompt_tokens"] == 60, "as many as have room"
        chat = {"messages": [{"role": "user", "content": "y" * 500}], "max_tokens": 4, "truncate_prompt_tokens": 10}
        assert (await http.post("/v1/chat/completions", json=chat)).json()["usage"]["prompt_tokens"] == 10
        for wrong, words in ((0, "at least 1"), (-2, ">= -1")):
            answer = await http.post("/v1/completions", json={"prompt": "x", "truncate_prompt_tokens": wrong})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "truncate_prompt_tokens")
            assert words in answer.json()["error"]["message"]


async def test_a_forced_call_takes_no_rules_that_may_forbid_it() -> None:
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}
    async with whole_server() as (r, _), r.http() as http:
        for rule in ({"bad_words": ["a"]}, {"allowed_token_ids": [5]}):
            body = {"messages": [{"role": "user", "content": "hi"}], **tools, **rule}
            error = (await http.post("/v1/chat/completions", json=body)).json()["error"]
            assert error["param"] == next(iter(rule)), error
            assert "none beside tool_choice" in error["message"]
