"""Which requests have the same answer, and which answers are kept for how long."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from actors.gateway.answer_cache.access import NO_ACCESS, access_of
from actors.gateway.answer_cache.answer_of import answer_of
from actors.gateway.answer_cache.cache_use import CacheUse, cache_use_of
from actors.gateway.answer_cache.fingerprint import fingerprint_of, is_repeatable
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.models.ids_only import IdsOnly
from messages.generation.grammar import Grammar, GrammarKind
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

GREEDY = Sampling(temperature=0.0)
KEEPING = GatewaySettings(answer_cache="exact")
KEY = bytes(range(16))
ANSWER = Ended(reason="length", n_cached=2)


def spec_of(prompt: tuple[int, ...] = (1, 2), sampling: Sampling = GREEDY, n: int = 1, **terms: Any) -> RequestSpec:
    prompts = [np.array(prompt, "<i4").tobytes()]
    given = {"max_tokens": 8, **terms}
    return RequestSpec(
        request="r", api="generate", created_s=0.0, prompts=prompts, sampling=sampling, terms=Terms(**given), n=n
    )


def ids_of(*tokens: int) -> bytes:
    return np.array(tokens, "<i4").tobytes()


def answered(spec: RequestSpec, n_tokens: int = 3, ended: Ended = ANSWER) -> Request:
    request = Request(1, spec, lambda _: IdsOnly(10, []).detokenizer(np.array([], "<i4")), 0.0)
    for sequence in request.sequences:
        sequence.accept(0, list(range(n_tokens)))
        sequence.publish(n_tokens, False)
        sequence.end(ended)
    return request


WITHOUT_EFFECT = {
    **{"priority": 5, "deadline_s": 3.0, "speculation": False, "trace_id": b"x" * 16, "group_tokens": 4},
    **{"ttft_ms": 300.0, "deadline_ms": 5000.0, "weight": 2.0, "page_share": 0.5, "cache_share": 0.5, "allow_fallback": False},
}
WITH_EFFECT = {
    "max_tokens": 9,
    "min_tokens": 2,
    "stop": ["x"],
    "stop_tokens": [7],
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "ignore_eos": True,
    "grammar": Grammar(kind=GrammarKind.REGEX, text="a*"),
    "logit_bias": {"3": 1.0},
    "allowed_token_ids": [3],
    "bad_tokens": [[3]],
    "prompt_logprobs": 1,
    "cache_salt": "mine",
    "cache_scope": b"me",
}
DONE_BY_ADMISSION = {"bad_words", "truncate_prompt_tokens"}  # the first is in `bad_tokens`, the second in the prompt


def test_every_term_is_judged() -> None:
    assert set(Terms.__struct_fields__) == {*WITHOUT_EFFECT, *WITH_EFFECT, *DONE_BY_ADMISSION, "caller"}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_term_without_effect_on_the_answer_changes_no_key(name: str) -> None:
    assert fingerprint_of(spec_of(**{name: WITHOUT_EFFECT[name]})) == fingerprint_of(spec_of())


@pytest.mark.parametrize("name", WITH_EFFECT)
def test_a_term_of_the_answer_changes_the_key(name: str) -> None:
    assert fingerprint_of(spec_of(**{name: WITH_EFFECT[name]})) != fingerprint_of(spec_of())


def test_prompt_sampling_number_and_model_are_in_the_key() -> None:
    others = [
        spec_of((1, 3)),
        spec_of(n=2),
        msgspec.structs.replace(spec_of(), fingerprint="another model"),
        spec_of(sampling=Sampling(temperature=0.0, repetition_penalty=1.1)),
        spec_of(sampling=Sampling(temperature=0.5, seed=1)),
        spec_of(sampling=Sampling(temperature=0.5, seed=2)),
    ]
    keys = {fingerprint_of(spec) for spec in [*others, spec_of()]}
    assert len(keys) == len(others) + 1
    assert fingerprint_of(spec_of(sampling=Sampling(temperature=0.0, seed=5))) == fingerprint_of(spec_of())


def test_only_an_answer_that_would_be_the_same_again_is_kept() -> None:
    sampled = spec_of(sampling=Sampling(temperature=0.5, seed=1))
    assert is_repeatable(spec_of(), has_seed=False)
    assert is_repeatable(sampled, has_seed=True)
    assert not is_repeatable(sampled, has_seed=False)


@pytest.mark.parametrize("spec", [spec_of(sampling=Sampling(temperature=0.0, logprobs=0)), spec_of(prompt_logprobs=0)])
def test_log_probabilities_are_not_kept_but_go_to_equal_requests_that_run(spec: RequestSpec) -> None:
    assert access_of(KEEPING, spec, CacheUse.FULL, has_seed=False) == NO_ACCESS
    both = GatewaySettings(answer_cache="exact", answer_coalescing=True)
    assert access_of(both, spec, CacheUse.FULL, has_seed=False)[1:3] == (True, False)
    assert access_of(both, spec_of(), CacheUse.FULL, has_seed=False)[1:3] == (True, True)


@pytest.mark.parametrize(
    ("header", "use"),
    [
        ("", CacheUse.FULL),
        ("max-stale=4", CacheUse.FULL),
        ("no-cache", CacheUse.REFRESH),
        ("max-age=0", CacheUse.REFRESH),
        ("max-age=60", CacheUse(max_age_s=60.0)),
        ("Max-Age=60, max-age=5", CacheUse(max_age_s=5.0)),
        ("max-age=60, no-cache", CacheUse.REFRESH),
        ("max-age=soon", CacheUse.FULL),
        ("No-Store, no-cache", CacheUse.NONE),
    ],
)
def test_a_client_says_what_it_wants(header: str, use: CacheUse) -> None:
    assert cache_use_of(header) == use
    access = access_of(KEEPING, spec_of(), use, has_seed=False)
    assert (access == NO_ACCESS, access.may_find) == (use is CacheUse.NONE, use.may_find)


def test_a_sample_without_a_seed_is_found_and_kept_where_its_client_asks_for_a_kept_answer() -> None:
    first, second = (spec_of(sampling=Sampling(temperature=0.5, seed=seed)) for seed in (1, 2))
    asked = cache_use_of("max-age=60")
    access = access_of(KEEPING, first, asked, has_seed=False)
    assert access[1:] == (True, True, 60.0, False)
    assert access.key == access_of(KEEPING, second, asked, has_seed=False).key
    assert access.key != access_of(KEEPING, first, asked, has_seed=True).key
    assert access.key != access_of(KEEPING, spec_of(), asked, has_seed=False).key
    assert access_of(KEEPING, first, CacheUse.FULL, has_seed=False) == NO_ACCESS
    assert access_of(KEEPING, first, CacheUse.REFRESH, has_seed=False) == NO_ACCESS


@pytest.mark.parametrize("ended", [Ended(reason="failed", code="internal"), Ended(reason="cancelled")])
def test_an_answer_that_is_not_whole_is_not_kept(ended: Ended) -> None:
    assert answer_of(KEY, answered(spec_of(), ended=ended), 0.0) is None


def test_an_answer_that_is_too_long_is_not_kept() -> None:
    assert answer_of(KEY, answered(spec_of(max_tokens=5000), 5000), 0.0) is None


def test_what_is_kept_of_an_answer() -> None:
    prompt = tuple(range(300))
    kept = answer_of(KEY, answered(spec_of(prompt, n=2, cache_scope=b"me")), 7.0)
    assert kept is not None
    assert [(one.ids, one.reason, one.n_cached) for one in kept.sequences] == [(ids_of(0, 1, 2), "length", 2)] * 2
    assert (kept.key, kept.scope, kept.starts) == (KEY, b"me", (ids_of(*range(256)),))
    assert (kept.began_s, kept.since_s) == (0.0, 7.0)


def test_nothing_is_looked_for_unless_it_is_asked_for() -> None:
    assert access_of(GatewaySettings(), spec_of(), CacheUse.FULL, has_seed=False) == NO_ACCESS
