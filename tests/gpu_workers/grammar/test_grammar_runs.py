"""The model runner on a tiny random model: answers match their grammars, however the work is cut into plans."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from tokenizers import Tokenizer

from gpu_workers.engine import PlanRefused
from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from tests.support.workers.grammar.grammar_runs import OBJECT, REGEX, WORDS, answer, constrained, grammar_runner, run_to_end
from tests.support.workers.grammar.tiny_tokenizer import END, tiny_tokenizer
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import Row, SmallScheduler
from tests.support.workers.tiny_model import load_runner, write_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return grammar_runner(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_tokenizer()


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_matches_its_grammar(runner: ModelRunner, tokenizer: Tokenizer, kind: str) -> None:
    assert re.fullmatch(REGEX, tokenizer.decode(answer(runner, WORDS, KINDS[kind])[:-1]))
    value = json.loads(tokenizer.decode(answer(runner, OBJECT, KINDS[kind])[:-1]))
    assert list(value) == ["ok", "n", "s"]
    assert isinstance(value["ok"], bool)
    assert value["n"] in (1, 22, 333)
    assert len(value["s"]) <= 4


def test_answers_of_many_seeds_match_and_differ(runner: ModelRunner, tokenizer: Tokenizer) -> None:
    texts = [tokenizer.decode(answer(runner, WORDS, Sampling(temperature=1.0, seed=seed))[:-1]) for seed in range(12)]
    assert all(re.fullmatch(REGEX, text) for text in texts)
    assert len(set(texts)) > 8


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_with_and_without_grammars_change_nothing(runner: ModelRunner, kind: str) -> None:
    scheduler = SmallScheduler(runner, seed=3)
    free, s = scheduler.add(prompt_of(8), KINDS[kind]), constrained(scheduler, WORDS, KINDS[kind])
    other = constrained(scheduler, OBJECT, KINDS[kind])
    scheduler.prefill(free, s, other)
    scheduler.decode([other, free, s], 8)
    assert free.output == alone(runner, prompt_of(8), KINDS[kind], 9)
    assert s.output == answer(runner, WORDS, KINDS[kind])[:9]
    assert other.output == answer(runner, OBJECT, KINDS[kind])[:9]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_moves_to_another_slot_goes_on(runner: ModelRunner, kind: str) -> None:
    expected = answer(runner, OBJECT, KINDS[kind])
    for n in (1, 4, len(expected) - 2):
        scheduler = SmallScheduler(runner, seed=n)
        assert expected[:n] + run_to_end(scheduler, constrained(scheduler, OBJECT, KINDS[kind], expected[:n]))[n:] == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [5, END, 150])
def test_drafts_change_nothing(runner: ModelRunner, kind: str, wrong: int) -> None:
    """A right draft, then one that the grammar does not allow, then others."""
    expected = answer(runner, WORDS, KINDS[kind])
    scheduler = SmallScheduler(runner)
    s = constrained(scheduler, WORDS, KINDS[kind])
    scheduler.prefill(s)
    while s.output[-1] != END:
        done = len(s.output)
        scheduler.run([Row(s, drafts=[*expected[done : done + 2], wrong, 7])])
        assert len(s.output) > done
    assert s.output[: len(expected)] == expected


def test_steps_after_the_end_bring_nothing_but_end_tokens(runner: ModelRunner) -> None:
    """The scheduler plans ahead before it knows that an answer has ended."""
    scheduler = SmallScheduler(runner)
    s = constrained(scheduler, WORDS, KINDS["random"])
    n = len(run_to_end(scheduler, s))
    scheduler.decode([s], 3)
    assert s.output[n:] == [END] * 3


def test_a_model_without_a_tokenizer_refuses_grammars(tmp_path_factory: pytest.TempPathFactory) -> None:
    runner = load_runner(write_model(tmp_path_factory.mktemp("ids-only")), "cpu")
    scheduler = SmallScheduler(runner)
    with pytest.raises(PlanRefused, match=r"new\.grammar: expected none for a model without a tokenizer"):
        runner.launch(scheduler.write_plan([Row(constrained(scheduler, WORDS, KINDS["greedy"]), 45)]))


def test_log_probabilities_are_those_of_the_model(runner: ModelRunner) -> None:
    sampling = Sampling(temperature=0.0, logprobs=3)
    scheduler = SmallScheduler(runner)
    free, s = scheduler.add(prompt_of(45), sampling), constrained(scheduler, WORDS, sampling)
    (result,) = scheduler.run([Row(free, 45), Row(s, 45)])
    assert result.logprobs is not None
    assert dict(result.logprobs.top_of(0)) == pytest.approx(dict(result.logprobs.top_of(1)))
    assert np.isfinite(result.logprobs.chosen).all()
    assert free.output != s.output
