"""Masks of slow grammars are computed between the steps of their answers, by other threads than the one of all steps."""

from __future__ import annotations

import threading
from typing import cast

import numpy as np
import pytest
from llguidance import LLMatcher

from gpu_workers.grammar import answer_grammar, mask_filler, mask_maker, masks_ahead
from gpu_workers.grammar.masks_ahead import MasksAhead, MaskThreads, MaskTimes, compute_ahead
from gpu_workers.runner.model_runner import ModelRunner
from messages.steps import GrammarReport, Result
from tests.support.workers.grammar.grammar_runs import OBJECT, WORDS, answer, constrained, grammar_runner
from tests.support.workers.grammar.tiny_tokenizer import END
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import Row, SmallScheduler


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return grammar_runner(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def all_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mask counts as slow."""
    monkeypatch.setattr(masks_ahead, "SLOW_S", 0.0)


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of masks that the step thread has computed, call by call."""
    calls: list[int] = []

    def fill(matcher: LLMatcher, row: int, drafts: list[int], masks: np.ndarray) -> float:
        assert threading.current_thread() is threading.main_thread()
        calls.append(1 + len(drafts))
        return masks_ahead.fill_alone(matcher, row, drafts, masks)

    for module in (mask_filler, mask_maker):
        monkeypatch.setattr(module, "fill_alone", fill)
    return calls


def report_of(result: Result) -> GrammarReport:
    assert result.grammars is not None
    return result.grammars


@pytest.mark.usefixtures("all_slow")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grammar", [WORDS, OBJECT], ids=["expression", "schema"])
def test_answers_are_the_same_and_only_the_first_mask_is_computed_in_a_step(
    runner: ModelRunner, in_steps: list[int], kind: str, grammar: str
) -> None:
    scheduler = SmallScheduler(runner)
    s = constrained(scheduler, grammar, KINDS[kind])
    (result,) = scheduler.run([Row(s, 45)])
    while s.output[-1] != END:
        report = report_of(result)
        assert [rest.slot for rest in report.rests] in ([s.slot], []), "none where nothing but the end may follow"
        drafts = report.ids.tolist()[:15]
        (result,) = scheduler.run([Row(s, drafts=drafts) if drafts else Row(s)])
    assert s.output == answer_of_steps(runner, grammar, kind)
    assert in_steps == [1]


def answer_of_steps(runner: ModelRunner, grammar: str, kind: str) -> list[int]:
    """The answer with every mask computed in its step."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(masks_ahead, "SLOW_S", float("inf"))
        for module in (mask_filler, mask_maker):
            patches.setattr(module, "fill_alone", masks_ahead.fill_alone)
        return answer(runner, grammar, KINDS[kind])


@pytest.mark.usefixtures("all_slow")
def test_drafts_that_were_not_foreseen_change_nothing(runner: ModelRunner) -> None:
    expected = answer_of_steps(runner, WORDS, "random")
    scheduler = SmallScheduler(runner)
    s = constrained(scheduler, WORDS, KINDS["random"])
    scheduler.prefill(s)
    while s.output[-1] != END:
        done = len(s.output)
        scheduler.run([Row(s, drafts=[*expected[done : done + 2], 7])])
    assert s.output[: len(expected)] == expected


@pytest.mark.usefixtures("all_slow")
def test_steps_without_the_answer_run_while_its_mask_is_computed(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, in_steps: list[int]
) -> None:
    """The mask takes as long as ten steps of the neighbour, and longer."""
    gate, begun = threading.Event(), threading.Event()

    def compute(matcher: LLMatcher, drafts: list[int], n_columns: int) -> MasksAhead:
        begun.set()
        gate.wait()
        return compute_ahead(matcher, drafts, n_columns)

    expected = answer_of_steps(runner, WORDS, "greedy")
    monkeypatch.setattr(masks_ahead, "compute_ahead", compute)
    scheduler = SmallScheduler(runner)
    free, s = scheduler.add(prompt_of(8), KINDS["greedy"]), constrained(scheduler, WORDS, KINDS["greedy"])
    (result,) = scheduler.run([Row(free, 8), Row(s, 45)])
    assert [rest.slot for rest in report_of(result).rests] == [s.slot]
    assert begun.wait(60.0)
    scheduler.decode([free], 10)
    assert not runner.is_compiling
    early = threading.Thread(target=lambda: scheduler.decode([free, s], 1))  # a plan that comes too early waits
    early.start()
    while not runner.is_compiling:
        assert early.is_alive()
    gate.set()
    early.join()
    assert free.output == alone(runner, prompt_of(8), KINDS["greedy"], 12)
    assert s.output == expected[:2]
    assert in_steps == [1]


@pytest.mark.usefixtures("all_slow")
def test_an_answer_whose_masks_take_too_long_fails_alone(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_grammar, "_MOST_MASKS_S", 0.0)
    scheduler = SmallScheduler(runner)
    free, s = scheduler.add(prompt_of(8), KINDS["greedy"]), constrained(scheduler, WORDS, KINDS["greedy"])
    (result,) = scheduler.run([Row(free, 8), Row(s, 45)])
    assert [failure.slot for failure in report_of(result).failures] == [s.slot]
    assert report_of(result).failures[0].reason == "its masks have taken more than 0 s of a processor"
    assert free.output == alone(runner, prompt_of(8), KINDS["greedy"], 1)


def test_a_slow_mask_is_remembered_for_some_quick_ones() -> None:
    times = MaskTimes()
    assert not times.is_slow
    times.add(0.008, 2)
    assert times.is_slow
    assert times.expected_s(2) == pytest.approx(0.008)
    times.add(0.0001, 1)
    assert times.is_slow
    times.add(0.0001, 1)
    assert not times.is_slow
    assert times.total_s == pytest.approx(0.0082)


def test_whoever_comes_behind_others_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    done = MasksAhead([], np.zeros((1, 1), np.int32), 0.0)
    monkeypatch.setattr(masks_ahead, "compute_ahead", lambda *_: gate.wait() and done)
    monkeypatch.setattr(masks_ahead.os, "sched_getaffinity", lambda _: {0, 1})
    threads, nobody = MaskThreads(), cast("LLMatcher", None)
    begun = [threads.begin(nobody, [], 32, 0.01) for _ in range(8)]
    assert [wait_s for _, wait_s in begun] == pytest.approx([0.015, 0.015, 0.0225, 0.03, 0.0375, 0.045, 0.0525, 0.06])
    gate.set()
    assert [each.result() for each, _ in begun] == [done] * 8
