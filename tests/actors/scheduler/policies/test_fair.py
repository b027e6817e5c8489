"""Fair shares: counters, callers that come back, displacement, and that nobody starves."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.policies.fair import FairPolicy
from actors.scheduler.sequences.policy import SchedulingPolicy
from messages.steps import PAGE_TOKENS
from tests.support.depth import examples
from tests.support.planner_bench import PlannerBench, sequence_of


def bench_of(**fields: int) -> PlannerBench:
    return PlannerBench({"plans_in_flight": 1, "policy": "fair"}, **({"n_slots": 4, "n_pages": 128} | fields))


def policy_of(bench: PlannerBench) -> FairPolicy:
    policy: SchedulingPolicy = bench.queues.policy
    assert isinstance(policy, FairPolicy)
    return policy


def served(bench: PlannerBench, n_plans: int) -> Counter[bytes]:
    """Tokens that so many plans compute, by caller."""
    tokens: Counter[bytes] = Counter()
    for _ in range(n_plans):
        planned = bench.plan()
        assert planned is not None
        for row in planned.rows:
            tokens[row.sequence.terms.caller] += row.count
        bench.apply()
    return tokens


def test_two_callers_share_by_their_weights_whatever_they_ask_for() -> None:
    bench = bench_of()
    for number in range(200):
        bench.add([number % 90, 1, 2, 3], max_tokens=12, caller=b"heavy")
    for number in range(60):
        bench.add([number, 4, 5, 6], max_tokens=12, caller=b"light", weight=3.0)
    tokens = served(bench, 150)
    assert abs(tokens[b"light"] / tokens.total() - 0.75) < 0.03


def test_a_caller_that_comes_back_has_saved_up_nothing() -> None:
    bench = bench_of()
    for number in range(200):
        bench.add([number % 90, 1], max_tokens=10, caller=b"always")
    bench.add([1, 2], max_tokens=1, caller=b"sometimes")
    served(bench, 100)
    for number in range(200):
        bench.add([number % 90, 7], max_tokens=10, caller=b"sometimes")
    tokens = served(bench, 100)
    assert 0.4 < tokens[b"sometimes"] / tokens.total() < 0.6


def test_what_a_caller_was_given_while_nobody_waited_is_no_debt() -> None:
    bench = bench_of(n_pages=1024, max_length=1024)
    for number in range(4):
        bench.add([number, 1], max_tokens=480, caller=b"first")
    served(bench, 480)
    for number in range(200):
        bench.add([number % 90, 2], max_tokens=10, caller=b"second")
    served(bench, 5)
    for number in range(200):
        bench.add([number % 90, 3], max_tokens=10, caller=b"first")
    tokens = served(bench, 100)
    assert 0.4 < tokens[b"first"] / tokens.total() < 0.6, "the first one used slots that nobody else wanted"


def test_a_new_caller_displaces_one_that_holds_all_slots_until_both_have_their_share() -> None:
    bench = bench_of()
    for number in range(6):
        bench.add([number, 1], max_tokens=150, caller=b"first")
    served(bench, 30)
    for number in range(4):
        bench.add([number, 2], max_tokens=150, caller=b"second")
    served(bench, 4)
    holders = Counter(sequence.terms.caller for sequence in bench.queues.running)
    assert holders == {b"first": 2, b"second": 2}
    n_displaced = sum(sequence.n_displaced for sequence in [*bench.queues.running, *bench.queues.waiting])
    served(bench, 40)
    assert n_displaced == sum(sequence.n_displaced for sequence in [*bench.queues.running, *bench.queues.waiting]) == 2


def test_a_new_caller_waits_for_no_plan_while_another_one_has_all_slots() -> None:
    bench = bench_of()
    for number in range(4):
        bench.add([number, 1], max_tokens=150, caller=b"first")
    served(bench, 30)
    new = bench.add([1, 2], max_tokens=150, caller=b"second")
    assert served(bench, 1)[b"second"]
    assert new in bench.queues.running


def test_what_is_computed_again_for_a_sequence_that_has_given_way_is_no_part_of_its_share() -> None:
    bench = bench_of(n_slots=8, n_pages=4096, max_length=2048, max_step_tokens=256)
    asked = {
        b"long": [bench.add([number] * 16, max_tokens=400, caller=b"long") for number in range(12)],
        b"short": [bench.add([number] * 16, max_tokens=16, caller=b"short") for number in range(400)],
    }
    served(bench, 800)
    got = {caller: sum(s.known for s in some if s.n_generated) for caller, some in asked.items()}
    assert sum(sequence.n_displaced for sequence in asked[b"long"]) > 50
    assert abs(got[b"long"] / sum(got.values()) - 0.5) < 0.02


def test_whole_pages_that_are_computed_again_are_part_of_the_share() -> None:
    policy = FairPolicy()
    sequence = sequence_of(1, [7] * 1000, caller=b"long")
    policy.arrived(sequence)
    for counter in (1000, 2000 - PAGE_TOKENS):
        policy.started(sequence)
        sequence.planned = 1000
        policy.planned([sequence], [1000], 0)
        assert policy.share_of(sequence).counter == counter, "else it would be computed for nothing each time that it gives way"
        policy.stopped(sequence)


def test_short_requests_never_wait_for_the_end_of_long_answers_of_another_caller() -> None:
    """Each displaces one of the same few sequences, which are the first of their caller to come back."""
    bench, waits = bench_of(max_length=2048, n_pages=1024), list[int]()
    for number in range(12):
        bench.add([number, 1], max_tokens=2000, caller=b"flood")
    served(bench, 20)
    for number in range(60):
        short = bench.add([number, 2], max_tokens=1, caller=b"short")
        n_plans = 0
        while short in bench.queues.waiting or short in bench.queues.running:
            served(bench, 1)
            n_plans += 1
        waits.append(n_plans)
    assert max(waits) <= 140, "128 tokens of a sequence that has given way often, and a few plans"


def test_a_caller_that_leaves_the_queue_delays_nobody_who_comes_later() -> None:
    bench = bench_of(n_pages=4096, max_length=2048, max_step_tokens=256)
    for number in range(400):
        bench.add([number % 90, 1, 2, 3], max_tokens=12, caller=b"flood")
    bench.add([7] * 1000, max_tokens=4, caller=b"long")
    served(bench, 12)
    counters = {share.caller: share.counter for share in policy_of(bench).active}
    assert counters[b"long"] > 10 * counters[b"flood"], "its prompt is one step's work, and counts at once"
    bench.queues.finish(bench.add([8] * 1000, max_tokens=4, caller=b"long"))  # its client leaves, or its gateway recalls it
    small = bench.add([1, 2], max_tokens=1, caller=b"small")
    served(bench, 2)
    assert small in bench.ended, "it has had nothing, so it is next"


def test_idle_callers_are_forgotten_and_counters_stay_small() -> None:
    policy = FairPolicy()
    queue = policy.make_queue()
    for number in range(10_000):
        sequence = sequence_of(number, caller=number.to_bytes(8))
        policy.arrived(sequence)
        queue.add(sequence)
        queue.remove(sequence)
        policy.ended(sequence)
    assert len(list(policy.active)) <= 4096
    policy.lift_floor(2e12)
    assert max(share.counter for share in policy.active) < 1e12


@given(st.integers(0, 2**32))
@examples(20)
def test_nobody_starves_whatever_arrives(seed: int) -> None:
    """A sequence of any caller ends, while others never stop asking."""
    rng = random.Random(seed)
    bench = bench_of(n_slots=rng.choice([1, 2, 4]), n_pages=rng.choice([24, 128]))
    callers = [bytes([number]) for number in range(rng.randint(2, 6))]
    wanted = bench.add([1] * rng.randint(1, 60), max_tokens=rng.randint(1, 40), caller=b"x", weight=rng.choice([0.5, 1.0]))
    for _ in range(3000):
        if len(bench.queues.waiting) < 20:
            terms = {"caller": rng.choice(callers), "weight": rng.choice([0.5, 1.0, 2.0]), "priority": rng.randint(0, 2)}
            bench.add([rng.randrange(90)] * rng.randint(1, 60), rng.randint(1, 40), **terms)
        bench.plan()
        bench.apply()
        if wanted in bench.ended:
            break
    assert wanted in bench.ended


@given(st.integers(0, 2**32))
@examples(30)
def test_the_queue_has_what_was_added_in_the_order_of_counters(seed: int) -> None:
    rng = random.Random(seed)
    bench = bench_of()
    policy, queue, members = policy_of(bench), bench.queues.waiting, []
    for number in range(rng.randint(1, 40)):
        if members and rng.random() < 0.3:
            sequence = members.pop(rng.randrange(len(members)))
            bench.queues.finish(sequence)
        else:
            members.append(bench.add([1], caller=bytes([rng.randrange(5)]), priority=rng.randint(0, 2), weight=number + 1.0))
        assert sorted(s.number for s in queue) == sorted(s.number for s in members)
        assert len(queue) == len(members)
        if members:
            (first,) = queue.first(1)
            assert policy.key(first)[0] == min(policy.key(s)[0] for s in members)
            assert {s.number for s in queue.without([first])} == {s.number for s in members if s is not first}
