"""A start that the machine refuses is tried again, ever later up to two seconds, and is never lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.spawn_retries import SpawnRetries

GROUPS: tuple[tuple[str, ...], ...] = (("gateway/0",), ("scheduler/0",), ("worker/0.0", "worker/0.1"))


def test_the_pause_doubles_up_to_two_seconds() -> None:
    late = SpawnRetries()
    pauses = [late.refused(("gateway/0",), 10.0) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert late.refused(("scheduler/0",), 10.0) == 0.1


def test_it_is_due_after_its_pause_and_handed_out_once() -> None:
    late = SpawnRetries()
    late.refused(("worker/0.0", "worker/0.1"), 10.0)
    assert late.due(10.09) == []
    assert late.due(10.11) == [("worker/0.0", "worker/0.1")]
    assert late.due(99.0) == []


def test_who_is_born_by_another_order_is_not_born_again() -> None:
    late = SpawnRetries()
    late.refused(("worker/0.1",), 0.0)
    late.spawned("worker/0.1")
    assert late.due(99.0) == []
    assert late.refused(("worker/0.1",), 0.0) == 0.1  # what was, is over


def test_a_wider_order_takes_the_place_of_a_narrower_one() -> None:
    late = SpawnRetries()
    late.refused(("worker/0.1",), 0.0)
    assert late.refused(("worker/0.0", "worker/0.1"), 0.0) == 0.2
    assert late.due(99.0) == [("worker/0.0", "worker/0.1")]


@given(st.lists(st.tuples(st.floats(0.01, 0.5), st.sets(st.sampled_from(GROUPS)), st.booleans()), max_size=200))
def test_nobody_is_lost_whatever_the_machine_refuses(looks: list[tuple[float, set[tuple[str, ...]], bool]]) -> None:
    late, now_s = SpawnRetries(), 0.0
    missing = set(GROUPS)
    for names in GROUPS:
        late.refused(names, now_s)
    tried_s = dict.fromkeys(GROUPS, now_s)
    for after_s, dead, is_refused in looks:
        now_s += after_s
        for names in late.due(now_s):
            assert names in missing
            tried_s[names] = now_s
            if is_refused:
                late.refused(names, now_s)
            else:
                missing.discard(names)
                for name in names:
                    late.spawned(name)
        for names in dead - missing:
            missing.add(names)
            tried_s[names] = now_s
            late.refused(names, now_s)
        assert all(now_s - tried_s[names] <= 2.5 for names in missing)
    assert set(late.due(now_s + 2.0)) == missing
