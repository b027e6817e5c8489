"""Which requests may share the answer of a similar one, and what two of them must have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from actors.gateway.admission.caller import caller_of_name
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.admission.similar_question import SimilarQuestions
from actors.gateway.admission.spec_builder import SpecBuilder
from actors.gateway.answer_cache.access import access_of
from actors.gateway.answer_cache.cache_use import CacheUse
from actors.gateway.settings import GatewaySettings
from actors.gateway.similar_answers.question import Question
from actors.gateway.text.models.served_text import served_text
from actors.gateway.text.template_options import TemplateOptions
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

GREEDY = Sampling(temperature=0.0)
SETTINGS = GatewaySettings(answer_cache="semantic", semantic_thresholds={"strict": 0.99})


def turns(text: str, *before: str) -> list[dict[str, str]]:
    return [*({"role": "system", "content": one} for one in before), {"role": "user", "content": text}]


def request(**fields: Any) -> NewRequest:
    given = {"request": "r", "api": "chat", "sampling": GREEDY, "terms": Terms(max_tokens=9), "turns": turns("what is it?")}
    if {"texts", "ids"} & fields.keys():
        del given["turns"]
    return NewRequest(**{**given, **fields})


async def question_of(new: NewRequest, settings: GatewaySettings = SETTINGS, fingerprint: str = "f") -> Question | None:
    spec = await SpecBuilder(settings, served_text(settings), fingerprint).build(new, 1.0)
    access = access_of(settings, spec, new.cache_use, has_seed=new.has_seed)
    return SimilarQuestions(settings).question_of(new, spec, access)


async def circle_of(**fields: Any) -> bytes:
    question = await question_of(request(**fields))
    assert question is not None
    return question.circle


@pytest.mark.parametrize(
    "fields",
    [
        {"turns": turns("what are they?")},
        {"turns": turns("a much longer text, so that less of the context is left for an answer")},
        {"request": "other", "is_whole": True},
        {"sampling": msgspec.structs.replace(GREEDY, seed=7)},
        {"terms": Terms(max_tokens=9, priority=3, trace_id=b"1" * 16)},
    ],
)
async def test_requests_with_another_text_are_in_one_circle(fields: dict[str, Any]) -> None:
    assert await circle_of(**fields) == await circle_of()


@pytest.mark.parametrize(
    "fields",
    [
        {"turns": turns("what is it?", "You are a poet.")},
        {"turns": turns("what was it in 2019?")},
        {"texts": ["what is it?"]},
        {"sampling": msgspec.structs.replace(GREEDY, repetition_penalty=1.1)},
        {"sampling": Sampling(temperature=0.5, seed=7), "has_seed": True},
        {"terms": Terms(max_tokens=10)},
        {"terms": Terms(max_tokens=9, stop=["."])},
        {"terms": Terms(max_tokens=9, cache_salt="mine")},
        {"terms": Terms(max_tokens=9, caller=b"you")},
        {"terms": Terms(max_tokens=9, logit_bias={"3": 1.0})},
        {"terms": Terms(max_tokens=9, ignore_eos=True, stop_tokens=[5])},
        {"template": TemplateOptions({"enable_thinking": False})},
        {"default_max_tokens": 16},
    ],
)
async def test_requests_with_other_terms_are_in_another_circle(fields: dict[str, Any]) -> None:
    assert await circle_of(**fields) != await circle_of()


async def test_another_model_is_another_circle() -> None:
    found = [await question_of(request(), fingerprint=name) for name in "fg"]
    other = msgspec.structs.replace(SETTINGS, embedding_model="another")
    found.append(await question_of(request(), other))
    assert len({question.circle for question in found if question is not None}) == 3


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("what is 3 times 4", "compute 3 times 4", True),
        ("what is 3 times 4", "what is 4 times 3", False),
        ("price of 1.5 l", "price of 15 l", False),
        ("at 10:30", "at 10:31", False),
    ],
)
async def test_numbers_must_be_equal(one: str, other: str, are_equal: bool) -> None:
    assert (await circle_of(turns=turns(one)) == await circle_of(turns=turns(other))) is are_equal


@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": Sampling(temperature=0.5)},
        {"sampling": msgspec.structs.replace(GREEDY, logprobs=0)},
        {"n": 2},
        {"texts": ["one", "two"]},
        {"ids": [[1, 2]]},
        {"texts": ["one"], "echo": True},
        {"api": "zeromq"},
        {"cache_use": CacheUse.NONE},
        {"with_token_ids": True},
        {"has_answer": False},
        {"terms": Terms(max_tokens=9, truncate_prompt_tokens=4)},
        {"turns": turns(" ", "only a system prompt")},
        {"turns": turns("x" * 3000)},
        {"turns": [*turns("a"), {"role": "assistant", "content": "b"}, *turns("c")]},
        {"turns": [{"role": "user", "content": "a", "name": "me"}]},
        {"turns": [*turns("a"), {"role": "assistant", "content": "b"}]},
    ],
)
async def test_other_requests_have_no_question(fields: dict[str, Any]) -> None:
    assert await question_of(request(**fields)) is None


async def test_a_request_that_refreshes_the_cache_has_a_question_and_finds_nothing() -> None:
    question = await question_of(request(cache_use=CacheUse.REFRESH))
    assert question is not None
    assert not question.may_find


@pytest.mark.parametrize(("name", "least"), [("strict", 0.99), ("another", 0.95)])
async def test_the_threshold_is_that_of_the_caller(name: str, least: float) -> None:
    question = await question_of(request(terms=Terms(max_tokens=9, caller=caller_of_name(name))))
    assert question is not None
    assert question.least == least


async def test_parts_of_a_message_are_no_trap() -> None:
    """Turns have their texts joined before they come here; anything else is no question."""
    parts: Sequence[Any] = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    assert await question_of(request(turns=turns("a"))) is not None
    spec = await SpecBuilder(SETTINGS, served_text(SETTINGS), "f").build(request(), 1.0)
    access = access_of(SETTINGS, spec, CacheUse.FULL, has_seed=False)
    assert SimilarQuestions(SETTINGS).question_of(request(turns=parts), spec, access) is None
