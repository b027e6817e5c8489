"""The model runner on a tiny random model: however the work is cut into plans, the same tokens come out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpu_workers.engine import PlanRefused
from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from tests.support.workers.copied_pages import copied_and_own
from tests.support.workers.sampling_kinds import KINDS, alone, check_drafts, mixed, prompt_of
from tests.support.workers.small_scheduler import GREEDY, Row, Running, SmallScheduler
from tests.support.workers.tiny_model import TINY


@pytest.mark.parametrize("kind", KINDS)
def test_chunked_prefill_equals_whole(runner: ModelRunner, kind: str) -> None:
    def work(scheduler: SmallScheduler, s: Running) -> None:
        for count in (1, 16, 9, 19):
            scheduler.run([Row(s, count)])
        scheduler.decode([s], 11)

    assert mixed(runner, work, KINDS[kind]) == alone(runner, prompt_of(45), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_batch_equals_alone(runner: ModelRunner, kind: str) -> None:
    def work(scheduler: SmallScheduler, s: Running) -> None:
        others = [scheduler.add(prompt_of(20 + i, i), KINDS[k]) for i, k in enumerate(KINDS)]
        scheduler.prefill(*others)
        scheduler.run([Row(others[0]), Row(s, 30), Row(others[1])])
        scheduler.run([Row(s, 15), *(Row(o) for o in others)])
        scheduler.decode([others[2], s, *others[:2]], 5)
        scheduler.drop(others[2])
        late = scheduler.add(prompt_of(60, 9))
        scheduler.run([Row(late, 60), Row(s)])
        scheduler.decode([s, late], 5)

    assert mixed(runner, work, KINDS[kind]) == alone(runner, prompt_of(45), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_lease_equals_single_steps(runner: ModelRunner, kind: str) -> None:
    def work(scheduler: SmallScheduler, s: Running) -> None:
        other = scheduler.add(prompt_of(8))
        scheduler.prefill(s, other)
        for n in (4, 4, 3):
            results = scheduler.run([Row(s), Row(other)], n_steps=n)
            assert len(results) == n

    assert mixed(runner, work, KINDS[kind]) == alone(runner, prompt_of(45), KINDS[kind])


def test_a_step_of_a_lease_is_told_before_the_next_is_computed(runner: ModelRunner) -> None:
    """Or a stream would come two tokens at a time."""
    scheduler = SmallScheduler(runner)
    s = scheduler.add(prompt_of(20))
    scheduler.prefill(s)
    tokens = runner._state.tokens[s.slot]
    tokens[21:] = -1  # the prompt has 20 tokens, and the first new one is known
    results = runner.collect(runner.launch(scheduler.write_plan([Row(s)], n_steps=3)))
    for n_told in (1, 2, 3):
        first = next(results)
        assert int((tokens[21:] >= 0).sum()) == n_told
        scheduler.read([first])
    assert next(results, None) is None


@pytest.mark.parametrize("kind", KINDS)
def test_two_in_flight_equals_one(runner: ModelRunner, kind: str) -> None:
    def work(scheduler: SmallScheduler, s: Running) -> None:
        flying = [runner.launch(scheduler.write_plan([Row(s, 45)]))]
        for _ in range(11):
            flying.append(runner.launch(scheduler.write_plan([Row(s)])))
            scheduler.read(list(runner.collect(flying.pop(0))))
        scheduler.read(list(runner.collect(flying.pop(0))))

    assert mixed(runner, work, KINDS[kind]) == alone(runner, prompt_of(45), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_right", [0, 1, 3])
def test_drafts_change_nothing(runner: ModelRunner, kind: str, n_right: int) -> None:
    check_drafts(runner, kind, n_right)


def banning(scheduler: SmallScheduler, sampling: Sampling, banned: set[int], min_tokens: int) -> Running:
    """A sequence whose banned tokens may not come among the first `min_tokens`."""
    s = scheduler.add(prompt_of(45), sampling)
    s.min_tokens, s.banned_tokens = min_tokens, sorted(banned)
    return s


@pytest.mark.parametrize("kind", KINDS)
def test_banned_tokens_come_after_min_tokens_only(runner: ModelRunner, kind: str) -> None:
    free = alone(runner, prompt_of(45), KINDS[kind], 30)
    banned = set(free[:20])
    scheduler = SmallScheduler(runner)
    s, other = banning(scheduler, KINDS[kind], banned, 7), scheduler.add(prompt_of(8), KINDS[kind])
    scheduler.prefill(s, other)
    scheduler.decode([s, other], 20)
    assert banned.isdisjoint(s.output[:7])
    assert other.output == alone(runner, prompt_of(8), KINDS[kind], 21)
    late = banning(scheduler, KINDS[kind], banned, 0)
    scheduler.prefill(late)
    scheduler.decode([late], 20)
    assert late.output == free[:21]


def test_the_greedy_choice_is_the_best_that_is_not_banned(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    plain = scheduler.add(prompt_of(45), Sampling(temperature=0.0, logprobs=3))
    (result,) = scheduler.run([Row(plain, 45)])
    assert result.logprobs is not None
    first, second, third = result.logprobs.top_ids.tolist()
    s = banning(scheduler, GREEDY, {first, second}, 1)
    scheduler.prefill(s)
    assert s.output == [third]


@pytest.mark.parametrize("kind", KINDS)
def test_bans_are_the_same_in_leases_and_with_drafts(runner: ModelRunner, kind: str) -> None:
    banned = set(alone(runner, prompt_of(45), KINDS[kind], 30))
    scheduler = SmallScheduler(runner)
    one, leased, drafted = (banning(scheduler, KINDS[kind], banned, 7) for _ in range(3))
    scheduler.prefill(one, leased, drafted)
    scheduler.decode([one], 16)
    for _ in range(4):
        scheduler.run([Row(leased)], n_steps=4)
    assert leased.output == one.output
    while len(drafted.output) < 12:
        done = len(drafted.output)
        scheduler.run([Row(drafted, drafts=[*one.output[done : done + 2], next(iter(banned)), 5])])
        assert len(drafted.output) >= done + 3
    assert drafted.output == one.output[: len(drafted.output)]


def test_a_banned_token_outside_of_the_vocabulary_is_refused(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    s = banning(scheduler, GREEDY, {TINY["vocab_size"]}, 1)
    with pytest.raises(PlanRefused, match=r"new\.terms: expected 0 to 210, got 211"):
        runner.launch(scheduler.write_plan([Row(s, 45)]))


def test_shared_prefix_equals_own(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    first = scheduler.add(prompt_of(40))
    scheduler.prefill(first)
    second = scheduler.add([*prompt_of(32), 1, 2, 3], shares=first, n_shared=32)
    scheduler.prefill(second)
    scheduler.decode([second, first], 8)
    assert second.output == alone(runner, [*prompt_of(32), 1, 2, 3], GREEDY, 9)


@pytest.mark.parametrize("n_copied", [1, 7, 15])
def test_a_copied_page_equals_an_own_one(runner: ModelRunner, n_copied: int) -> None:
    for copied, own in copied_and_own(runner, n_copied):
        assert copied == own


def test_logprobs_are_of_the_raw_distribution(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    asked = Sampling(temperature=0.5, seed=3, logprobs=2)
    a, b = scheduler.add(prompt_of(9), asked), scheduler.add(prompt_of(9))
    (result,) = scheduler.run([Row(b, 9), Row(a, 9)])
    assert result.logprobs is not None
    chosen, top, ids = result.logprobs.chosen, result.logprobs.top.reshape(2, 2), result.logprobs.top_ids.reshape(2, 2)
    assert np.isnan(chosen[0])
    assert ids[0].tolist() == [-1, -1]
    assert ids[1, 0] == b.output[0]  # the greedy choice on the same prompt
    assert top[1, 0] > top[1, 1]
    assert chosen[1] <= top[1, 0] + 1e-6
    assert 0 < np.exp(top[1]).sum() <= 1


def test_logprobs_of_drafts_stand_beside_their_tokens(runner: ModelRunner) -> None:
    asked = Sampling(temperature=0.0, logprobs=0)
    expected = alone(runner, prompt_of(12), asked, 6)
    scheduler = SmallScheduler(runner)
    s = scheduler.add(prompt_of(12), asked)
    scheduler.prefill(s)
    (result,) = scheduler.run([Row(s, drafts=[*expected[1:3], 0 if expected[3] else 1])])
    assert result.counts.tolist() == [3]
    assert result.logprobs is not None
    assert len(result.logprobs.chosen) == 3
    assert result.logprobs.width == 0
    assert np.isfinite(result.logprobs.chosen).all()


def test_refused_plan_leaves_no_trace(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    s = scheduler.add(prompt_of(45))
    scheduler.prefill(s)
    before = runner._state.tokens.clone()  # nothing public shows the device's tables
    ghost = scheduler.add([1, 2])
    ghost.is_sent = True
    with pytest.raises(PlanRefused):
        runner.launch(scheduler.write_plan([Row(ghost, 2), Row(scheduler.add([9]))]))
    assert torch.equal(before, runner._state.tokens)
    scheduler.decode([s], 11)
    assert s.output == alone(runner, prompt_of(45), GREEDY)


def test_output_is_not_all_the_same(runner: ModelRunner) -> None:
    """Else every comparison here would be an empty one."""
    outputs = [alone(runner, prompt_of(45), sampling) for sampling in KINDS.values()]
    assert len({tuple(output) for output in outputs}) == len(KINDS)
    assert all(len(set(output)) > 3 for output in outputs)


def test_reset_forgets(runner: ModelRunner) -> None:
    first = alone(runner, prompt_of(20), GREEDY)
    assert alone(runner, prompt_of(20), GREEDY) == first


def test_pages_that_were_returned_read_as_zeros_and_are_used_again(runner: ModelRunner) -> None:
    tokens = alone(runner, prompt_of(45), GREEDY)
    n_pages = runner.capacity().n_pages
    runner.return_pages(np.arange(n_pages, dtype=np.int32))
    assert not runner._kv.storage[:n_pages].any()
    assert alone(runner, prompt_of(45), GREEDY) == tokens
    with pytest.raises(ValueError, match=r"^pages: expected numbers from 0 to"):
        runner.return_pages(np.array([n_pages], np.int32))  # the dummy page
