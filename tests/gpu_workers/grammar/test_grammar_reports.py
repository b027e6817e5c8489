"""What a rank says of its grammars: tokens that can be no others, and answers that cannot go on."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from llguidance import LLMatcher

from gpu_workers.grammar import mask_filler
from gpu_workers.grammar.answer_grammar import AnswerBeginning, AnswerGrammar
from gpu_workers.grammar.compiled_grammars import CompiledGrammars
from gpu_workers.grammar.masks_ahead import fill_alone
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from gpu_workers.runner.model_runner import ModelRunner
from messages.steps import GrammarReport
from tests.support.workers.grammar.grammar_runs import OBJECT, TOO_COMPLEX, WORDS, answer, constrained, grammar_runner
from tests.support.workers.grammar.tiny_tokenizer import END, tiny_tokenizer, write_tokenizer
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import Row, Running, SmallScheduler


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return grammar_runner(tmp_path_factory.mktemp("tiny"))


def forced_of(report: GrammarReport | None, s: Running) -> list[int]:
    """The forced tokens after all known ones."""
    if report is None or s.slot not in report.slots:
        return []
    assert (report.slots.tolist(), report.starts.tolist(), report.failures) == ([s.slot], [len(s.tokens)], [])
    return report.ids.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_forced_tokens_are_accepted_as_drafts_and_change_nothing(runner: ModelRunner, kind: str) -> None:
    expected = answer(runner, OBJECT, KINDS[kind])
    scheduler = SmallScheduler(runner)
    s = constrained(scheduler, OBJECT, KINDS[kind])
    (result,) = scheduler.run([Row(s, 45)])
    n_steps, n_forced = 1, 0
    while s.output[-1] != END:
        forced = forced_of(result.grammars, s)
        (result,) = scheduler.run([Row(s, drafts=forced)])
        assert result.counts.tolist() == [len(forced) + 1]
        n_steps, n_forced = n_steps + 1, n_forced + len(forced)
    assert s.output == expected
    assert n_forced > 10
    assert n_steps == len(expected) - n_forced


def test_whoever_goes_on_with_an_answer_finds_the_same_tokens(runner: ModelRunner) -> None:
    expected = answer(runner, OBJECT, KINDS["greedy"])
    reports: list[list[int]] = []
    scheduler = SmallScheduler(runner)
    s = constrained(scheduler, OBJECT, KINDS["greedy"])
    for index in range(len(expected) - 1):
        (result,) = scheduler.run([Row(s, 1 if index else 45)])
        reports.append(forced_of(result.grammars, s))
    for n in range(len(expected) - 2):
        other = SmallScheduler(runner, seed=n)
        s = constrained(other, OBJECT, KINDS["greedy"], expected[:n])
        (result,) = other.run([Row(s, 45 + n)])
        assert forced_of(result.grammars, s) == reports[n]


def test_a_row_without_a_certain_continuation_says_nothing(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    free, s = scheduler.add(prompt_of(8), KINDS["random"]), constrained(scheduler, WORDS, KINDS["random"])
    (result,) = scheduler.run([Row(free, 8), Row(s, 45)])
    assert result.grammars is None
    assert free.output == alone(runner, prompt_of(8), KINDS["random"], 1)


def test_a_limit_that_is_met_in_the_middle_of_an_answer_is_told(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    free, s = scheduler.add(prompt_of(8), KINDS["greedy"]), constrained(scheduler, TOO_COMPLEX, KINDS["greedy"])
    (result,) = scheduler.run([Row(free, 8), Row(s, 45)])
    while result.grammars is None or not result.grammars.failures:
        (result,) = scheduler.run([Row(free), Row(s)])
        assert len(s.output) < 5
    (failure,) = result.grammars.failures
    assert failure.slot == s.slot
    assert failure.reason.startswith("Parser Error: Current row has 2101 items; max is 2000")
    assert "\n" not in failure.reason
    assert tiny_tokenizer().decode(s.output[:1]) == "ab"
    assert free.output == alone(runner, prompt_of(8), KINDS["greedy"], len(free.output))
    other = SmallScheduler(runner, seed=1)
    again = constrained(other, TOO_COMPLEX, KINDS["greedy"], s.output[:1])
    (result,) = other.run([Row(again, 46)])
    assert result.grammars is not None
    assert [one.reason for one in result.grammars.failures] == [failure.reason], "after a death it fails at the same place"


def test_a_step_does_not_wait_for_a_grammar_that_it_does_not_need(runner: ModelRunner) -> None:
    """The vocabulary of this runner is not made before the test says so."""
    scheduler = SmallScheduler(runner)
    free, s = scheduler.add(prompt_of(8), KINDS["greedy"]), constrained(scheduler, WORDS + " ", KINDS["greedy"])
    vocabulary = runner._grammars._vocabulary
    assert vocabulary is not None
    vocabulary._made.clear()
    try:
        scheduler.run([Row(free, 8), Row(s, 20)])
        scheduler.decode([free], 3)
        assert not runner.is_compiling
        step = Thread(target=lambda: scheduler.run([Row(s, 25)]))
        step.start()
        while not runner.is_compiling:  # a step that waits for the grammar does not hang
            assert step.is_alive()
    finally:
        vocabulary._made.set()
    step.join()
    assert not runner.is_compiling
    assert s.output == answer(runner, WORDS, KINDS["greedy"])[:1]


def test_the_masks_of_forced_tokens_are_not_computed(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the mask after the last of them is, and while the plan that has them is on its way."""
    n_masks: list[int] = []

    def fill(matcher: LLMatcher, row: int, drafts: list[int], masks: np.ndarray) -> float:
        n_masks.append(1 + len(drafts))
        return fill_alone(matcher, row, drafts, masks)

    monkeypatch.setattr(mask_filler, "fill_alone", fill)
    scheduler = SmallScheduler(runner)
    s = constrained(scheduler, OBJECT, KINDS["random"])
    (result,) = scheduler.run([Row(s, 45)])
    n_forced = 0
    while s.output[-1] != END:
        forced = forced_of(result.grammars, s)
        (result,) = scheduler.run([Row(s, drafts=forced)])
        n_forced += len(forced)
    assert n_forced > 10
    assert set(n_masks) == {1}


def test_an_answer_whose_forced_token_was_not_sampled_fails(tmp_path: Path) -> None:
    """Logits that are no numbers may give any token."""
    write_tokenizer(tmp_path)
    vocabulary = GrammarVocabulary(tmp_path / "tokenizer.json", END + 1)
    grammar = json.dumps({"grammars": [{"lark_grammar": 'start: "false"'}]})
    answer = AnswerGrammar(AnswerBeginning(CompiledGrammars(vocabulary).get(grammar)), [END], 10, [])
    forced = answer.forced()
    assert len(forced) > 1
    assert not answer.failure
    answer.sampled([*forced[:-1], END])
    assert answer.failure == "a token was sampled that the grammar does not allow"
