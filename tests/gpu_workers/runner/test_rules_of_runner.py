"""Rules for single tokens in the model runner: the same tokens however the work is cut into plans, none that breaks a rule."""

from __future__ import annotations

import pytest

from gpu_workers.engine import PlanRefused
from gpu_workers.runner.model_runner import ModelRunner
from messages.steps import TokenRules
from tests.support.workers.ruled_sequences import RULES, keeps, ruled, rules_against
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import GREEDY, Row, SmallScheduler
from tests.support.workers.tiny_model import TINY

pytestmark = pytest.mark.slow

_KINDS = ("greedy", "filtered")


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", _KINDS)
def test_rules_hold_in_single_steps_leases_and_after_a_re_entry(runner: ModelRunner, kind: str, name: str) -> None:
    free = alone(runner, prompt_of(45), KINDS[kind], 30)
    rules = rules_against(free, name)
    scheduler = SmallScheduler(runner)
    one, leased, other = ruled(scheduler, kind, rules), ruled(scheduler, kind, rules), scheduler.add(prompt_of(8), KINDS[kind])
    scheduler.prefill(one, leased, other)
    scheduler.decode([one, other], 16)
    for _ in range(4):
        scheduler.run([Row(leased)], n_steps=4)
    assert keeps(one.output, rules)
    assert one.output != free[:17]
    assert leased.output == one.output
    assert other.output == alone(runner, prompt_of(8), KINDS[kind], 17)
    later = SmallScheduler(runner)
    again = ruled(later, kind, rules, one.output[:7])
    later.prefill(again)
    later.decode([again], 9)
    assert again.output == one.output


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", _KINDS)
def test_a_draft_that_breaks_a_rule_is_rejected(runner: ModelRunner, kind: str, name: str) -> None:
    free = alone(runner, prompt_of(45), KINDS[kind], 30)
    rules = rules_against(free, name)
    scheduler = SmallScheduler(runner)
    one, drafted = ruled(scheduler, kind, rules), ruled(scheduler, kind, rules)
    scheduler.prefill(one, drafted)
    scheduler.decode([one], 20)
    while len(drafted.output) < 15:
        done = len(drafted.output)
        scheduler.run([Row(drafted, drafts=[*one.output[done : done + 2], free[done + 2], free[done + 3]])])
        assert len(drafted.output) >= done + 3
    assert drafted.output == one.output[: len(drafted.output)]


def test_rules_outside_of_the_vocabulary_are_refused(runner: ModelRunner) -> None:
    size = TINY["vocab_size"]
    for rules in (TokenRules(biased=[size], biases=[1.0]), TokenRules(allowed=[1, size]), TokenRules(bad=[[1], [2, size]])):
        scheduler = SmallScheduler(runner)
        s = scheduler.add(prompt_of(45), GREEDY)
        s.rules = rules
        with pytest.raises(PlanRefused, match=r"new\.rules: expected 0 to 210, got 211"):
            runner.launch(scheduler.write_plan([Row(s, 45)]))
