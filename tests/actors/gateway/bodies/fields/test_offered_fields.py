"""Every generating body offers every sampling parameter and every term that clients may set, and takes its value."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.gateway.bodies.response_body import ResponsesBody
from actors.gateway.bodies.schema import BatchBody, ChatBody, CompletionBody, GenerateBody
from actors.gateway.http.endpoints.anthropic import MessagesBody
from messages.generation.examples import example_of
from messages.generation.sampling import Sampling
from messages.generation.terms import SERVER_TERMS, RankTerms, Terms
from tests.support.answers.short_bodies import BODIES
from tests.support.gateway.gateway_rig import rig

OTHERWISE = {"logprobs", "prompt_logprobs", "max_tokens", "stop", "stop_tokens", "trace_id", "grammar"}  # under other names
TERMS: dict[str, Any] = {
    "ignore_eos": True, "priority": 3, "deadline_s": 30.0, "speculation": False, "logit_bias": {"7": 1.5},
    "include_stop_str_in_output": True, "truncate_prompt_tokens": 8, "allowed_token_ids": [7, 8], "skip_special_tokens": False,
    "bad_words": ["no"], "cache_salt": "mine", "ttft_ms": 500.0, "deadline_ms": 9000.0, "allow_fallback": False,
} | {name: getattr(example_of(RankTerms), name) for name in RankTerms.__struct_fields__ if name not in OTHERWISE}  # fmt: skip


@pytest.mark.parametrize("body", [ChatBody, CompletionBody, GenerateBody, BatchBody, ResponsesBody, MessagesBody])
def test_a_body_has_every_parameter_and_term(body: type[msgspec.Struct]) -> None:
    offered = {*Sampling.__struct_fields__, *Terms.__struct_fields__} - SERVER_TERMS - OTHERWISE
    assert offered <= set(body.__struct_fields__)
    assert set(TERMS) == offered - set(Sampling.__struct_fields__)


async def test_their_values_reach_the_scheduler() -> None:
    wanted = example_of(Sampling)
    names = [name for name in Sampling.__struct_fields__ if name not in ("logprobs", "seed")]
    given = {name: getattr(wanted, name) for name in names} | {"seed": 5, "stop_token_ids": [9]}
    async with rig() as r, r.http() as http:
        for path, prompt in BODIES.items():
            answer = await http.post(path, json={**prompt, **given, **TERMS})
            assert answer.status_code == 200, (path, answer.text)
            sent = r.scheduler().submits[-1]
            assert sent.sampling == msgspec.structs.replace(wanted, seed=5, logprobs=-1), path
            assert {name: getattr(sent.terms, name) for name in TERMS} == TERMS, path
            assert sent.terms.stop_tokens == [9], path


async def test_what_a_body_does_not_offer_is_still_refused() -> None:
    async with rig() as r, r.http() as http:
        for field, value in (("min_p", 0.1), ("temperature", 1.0), ("seed", 0)):
            answer = await http.post("/tokenize", json={"prompt": "A text.", field: value})
            assert answer.status_code == 400, (field, answer.text)
            assert f"{field}: unknown field; known fields are" in answer.text
