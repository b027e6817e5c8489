"""The hash chain gives the oracle's tokens through slots and pages, however the work is cut into plans."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.engine import PlanRefused
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.settings import WorkerSettings
from messages.generation.sampling import Sampling
from messages.steps import PAGE_TOKENS, TokenRules
from tests.support.depth import examples
from tests.support.workers.small_scheduler import GREEDY, Row, SmallScheduler

VOCABULARY = 997


def engine(**changes: object) -> HashChainEngine:
    fields = {"n_slots": 8, "max_length": 512, "max_step_tokens": 256, "max_lease_steps": 8, "hash_chain_pages": 256}
    return HashChainEngine(WorkerSettings(**{**fields, "hash_chain_vocabulary": VOCABULARY, **changes}))  # type: ignore[arg-type]


def expected(sequence: object, n: int) -> list[int]:
    s = sequence
    seed = s.sampling.seed if s.sampling.temperature > 0 else 0  # type: ignore[attr-defined]
    return hash_chain_tokens(s.tokens[: s.n_prompt], n, seed, VOCABULARY)  # type: ignore[attr-defined]


def test_the_oracle_is_stable() -> None:
    assert hash_chain_tokens([1, 2, 3], 4, 0, 32_768) == [8269, 14593, 10603, 18204]


def test_seed_counts_only_with_temperature() -> None:
    scheduler = SmallScheduler(engine())
    a = scheduler.add([5, 6, 7], Sampling(temperature=0.0, seed=99))
    b = scheduler.add([5, 6, 7], Sampling(temperature=1.0, seed=99))
    scheduler.prefill(a, b)
    scheduler.decode([a, b], 20)
    assert a.output == hash_chain_tokens([5, 6, 7], 21, 0, VOCABULARY)
    assert b.output == hash_chain_tokens([5, 6, 7], 21, 99, VOCABULARY)


def test_banned_tokens_come_after_min_tokens_only() -> None:
    free = hash_chain_tokens([5, 6, 7], 8, 0, VOCABULARY)
    banned = {free[0], (free[0] + 1) % VOCABULARY}
    scheduler = SmallScheduler(engine())
    s = scheduler.add([5, 6, 7])
    s.min_tokens, s.banned_tokens = 4, sorted(banned)
    scheduler.prefill(s)
    scheduler.run([Row(s, drafts=[free[0], 9])])  # the draft that is banned does not count
    scheduler.decode([s], 20)
    assert s.output == hash_chain_tokens([5, 6, 7], 22, 0, VOCABULARY, banned, 4)
    assert s.output[0] == free[0] + 2
    assert s.output[:4] != free[:4]


@given(data=st.data())
@examples(60)
def test_any_mixture_of_plans_gives_the_oracle(data: st.DataObject) -> None:
    scheduler = SmallScheduler(engine(), seed=data.draw(st.integers(0, 1000)))
    running, n_born = [], 0
    for _ in range(data.draw(st.integers(5, 40))):
        if len(running) < 6 and data.draw(st.booleans()):
            prompt = [(n_born * 7 + i) % VOCABULARY for i in range(data.draw(st.integers(1, 70)))]
            sampling = data.draw(st.sampled_from([GREEDY, Sampling(temperature=0.7, seed=n_born)]))
            running.append(scheduler.add(prompt, sampling))
            n_born += 1
        rows = []
        for s in running:
            left = s.n_known - s.n_computed
            if len(s.tokens) > 400 or not data.draw(st.booleans()):
                continue
            if left == 1 and len(s.tokens) == s.n_known and data.draw(st.booleans()):
                true = hash_chain_tokens(s.tokens, 4, s.sampling.seed if s.sampling.temperature > 0 else 0, VOCABULARY)
                n_right = data.draw(st.integers(0, 4))
                rows.append(Row(s, drafts=[*true[:n_right], 3][: data.draw(st.integers(1, 5))]))
            else:
                rows.append(Row(s, data.draw(st.integers(1, min(left, 40)))))
        lease = data.draw(st.integers(1, 4)) if rows and all(r.count == 1 and not r.drafts for r in rows) else 1
        if any(r.sequence.n_computed + 1 < r.sequence.n_known for r in rows):
            lease = 1
        scheduler.run(rows, lease)
        if running and data.draw(st.integers(0, 9)) == 0:
            scheduler.drop(running.pop(0))
        for s in running:
            assert s.output == expected(s, len(s.output))


def test_prefix_shared_within_one_step() -> None:
    scheduler = SmallScheduler(engine())
    prompt = list(range(40))
    a = scheduler.add(prompt)
    plan_rows = [Row(a, 40)]
    scheduler.run(plan_rows)
    b = scheduler.add([*prompt[:32], 9, 9], shares=a, n_shared=32)
    scheduler.prefill(b)
    assert b.output == expected(b, 1)
    c = scheduler.add(list(range(100, 133)))
    c.pages = [scheduler._free_pages.pop(), scheduler._free_pages.pop()]
    d = scheduler.add(list(range(100, 133)), shares=c, n_shared=32)
    scheduler.run([Row(d, 1), Row(c, 33)])  # d reads in the same step what c writes
    assert c.output == d.output == expected(c, 1)


def test_a_wrong_page_changes_the_output() -> None:
    scheduler = SmallScheduler(engine())
    a, other = scheduler.add(list(range(40))), scheduler.add(list(range(50, 90)))
    scheduler.prefill(a, other)
    b = scheduler.add([*range(32), 1], shares=other, n_shared=32)
    scheduler.prefill(b)
    assert b.output != expected(b, 1)


@pytest.mark.parametrize("n_copied", [1, 15])
def test_a_page_that_is_not_copied_changes_the_output(n_copied: int) -> None:
    prompt = list(range(32 + n_copied + 1))
    scheduler = SmallScheduler(engine())
    a = scheduler.add(prompt)
    scheduler.prefill(a)
    b, c = (scheduler.add(prompt, shares=a, n_shared=32 + n_copied) for _ in range(2))
    c.copied = None  # nobody copies its page
    for _ in range(20):
        scheduler.run([Row(a), Row(b), Row(c)])
    assert a.output == expected(a, 21)
    assert b.output == expected(b, 20)
    assert c.output != expected(c, 20)


def test_two_in_flight_equal_one() -> None:
    scheduler = SmallScheduler(engine(hash_chain_step_s=0.001))
    a, b = scheduler.add([1, 2, 3]), scheduler.add(list(range(30)))
    scheduler.prefill(a, b)
    flying = []
    for _ in range(10):
        flying.append(scheduler.engine.launch(scheduler.write_plan([Row(a), Row(b)])))
        if len(flying) == 2:
            scheduler.read(list(scheduler.engine.collect(flying.pop(0))))
    scheduler.read(list(scheduler.engine.collect(flying.pop(0))))
    assert a.output == expected(a, 11)
    assert b.output == expected(b, 11)


def test_steps_are_slow_while_the_pulse_is_old(tmp_path: Path) -> None:
    pulse = tmp_path / "pulse"
    scheduler = SmallScheduler(engine(hash_chain_step_s=1e-6, hash_chain_pulse=str(pulse)))
    a = scheduler.add([1, 2, 3])
    for age_s, is_slow in ((None, False), (60.0, True), (-60.0, False)):
        if age_s is not None:
            then_s = time.time() - age_s
            pulse.touch()
            os.utime(pulse, (then_s, then_s))
        began_s = time.monotonic()
        launched = scheduler.engine.launch(scheduler.write_plan([Row(a, 3 if age_s is None else 1)]))
        step_s = launched.ready_s[0] - time.monotonic()
        assert launched.ready_s[0] - began_s >= 0.1 if is_slow else step_s <= 1e-6
        scheduler.read(list(scheduler.engine.collect(launched)))


def test_logprobs_have_the_shape_of_the_wire() -> None:
    scheduler = SmallScheduler(engine())
    a = scheduler.add([1, 2], Sampling(temperature=0.0, logprobs=3))
    b = scheduler.add([3, 4])
    (result,) = scheduler.run([Row(a, 2), Row(b, 2)])
    assert result.logprobs is not None
    assert result.logprobs.width == 3
    assert result.logprobs.top_ids.reshape(2, 3)[0, 0] == result.ids[0]
    assert (result.logprobs.top_ids.reshape(2, 3)[1] == -1).all()
    assert result.logprobs.chosen[0] == 0.0
    assert np.isnan(result.logprobs.chosen[1])


def test_refused_plan_leaves_no_trace() -> None:
    scheduler = SmallScheduler(engine())
    a = scheduler.add(list(range(PAGE_TOKENS)))
    scheduler.prefill(a)
    ghost = scheduler.add([1, 2, 3])
    ghost.is_sent = True  # its tokens were never sent
    with pytest.raises(PlanRefused) as refusal:
        scheduler.run([Row(a), Row(ghost, 3)])
    assert refusal.value.suspects.tolist() == [ghost.slot]
    a.n_computed, a.n_known, a.pages = a.n_computed - 1, a.n_known - 1, a.pages[:1]
    scheduler.run([Row(a)])
    assert a.output == expected(a, 2)


def test_rules_for_single_tokens_hold() -> None:
    free = hash_chain_tokens([5, 6, 7], 8, 0, VOCABULARY)
    scheduler = SmallScheduler(engine())
    allowed, bad = scheduler.add([5, 6, 7]), scheduler.add([5, 6, 7])
    allowed.rules = TokenRules(allowed=[1, 2, 3])
    bad.rules = TokenRules(bad=[free[:3], [free[3]]])
    scheduler.prefill(allowed, bad)
    scheduler.run([Row(bad, drafts=[*free[1:4]])])
    scheduler.decode([allowed, bad], 20)
    assert set(allowed.output) <= {1, 2, 3}
    assert bad.output[:3] == [*free[:2], free[2] + 1]  # the draft that ends the bad word is rejected
