"""While urgent requests come, prompts and halves of the decoding sequences take turns."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.planning.plan_builder import PlannedStep
from messages.steps import Result
from messages.wire.arrays import int32s
from tests.support.depth import examples
from tests.support.planner_bench import PlannerBench, next_token

_DECODE_S, _ROW_S, _TOKEN_S = 1e-3, 1e-3, 1e-3


class Turning:
    """A bench whose steps take a millisecond, and one more for each row and each token of a prompt."""

    def __init__(self, urgent_step_s: float, n_low: int, n_slots: int = 12) -> None:
        settings = {"policy": "priority", "plans_in_flight": 1, "step_s": 0.05, "urgent_step_s": urgent_step_s}
        self.bench = PlannerBench(settings, n_slots=n_slots, n_pages=2000, max_step_tokens=512)
        self.low = [self.bench.add([number] * 20, max_tokens=200, priority=9) for number in range(1, n_low + 1)]
        for _ in range(12):
            self.step()

    def step(self) -> PlannedStep | None:
        """The next step, computed."""
        planned = self.bench.plan()
        if planned is None:
            return None
        self.bench.plans.popleft()
        n_decode, n_tokens, _ = planned.work
        took_s = _DECODE_S + _ROW_S * n_decode + _TOKEN_S * n_tokens
        self.bench.now_s += took_s
        rows = planned.sampling
        slots, ones = int32s([row.slot for row in rows]), int32s([1] * len(rows))
        ids = int32s([next_token(row.sequence, row.start + row.count) for row in rows])
        result = Result(epoch=planned.plan.epoch, step=planned.plan.step, slots=slots, counts=ones, ids=ids, compute_s=took_s)
        for advance in self.bench.gang.apply(result):
            if advance.ending is not None:
                self.bench.ended.append(advance.row.sequence)
                self.bench.gang.release(advance.row.sequence)
        return planned


def numbers(planned: PlannedStep | None) -> list[int]:
    return [row.sequence.number for row in planned.rows] if planned is not None else []


def test_nobody_takes_turns_before_an_urgent_request_has_come_or_without_the_setting() -> None:
    for urgent_step_s, has_urgent in ((0.006, False), (0.0, True)):
        turning = Turning(urgent_step_s, n_low=8)
        if has_urgent:
            turning.bench.add([99] * 8, max_tokens=1, priority=0)
            turning.step()
        turning.step()
        assert [len(numbers(turning.step())) for _ in range(6)] == [8] * 6


def test_halves_take_turns_once_an_urgent_request_has_come_until_a_minute_after_it() -> None:
    turning = Turning(0.006, n_low=8)
    turning.bench.add([99] * 8, max_tokens=1, priority=0)
    turning.step()
    turning.step()
    steps = [numbers(turning.step()) for _ in range(6)]
    assert [len(step) for step in steps] == [4] * 6
    assert all(sorted(one + other) == list(range(1, 9)) for one, other in pairwise(steps))
    turning.bench.now_s += 61.0
    assert len(numbers(turning.step())) == 8


def test_an_urgent_answer_gets_a_token_with_each_step() -> None:
    turning = Turning(0.006, n_low=8)
    urgent = turning.bench.add([99] * 8, max_tokens=20, priority=0)
    turning.step()
    turning.step()
    assert all(urgent.number in numbers(turning.step()) for _ in range(10))


def test_prompts_have_steps_of_their_own_which_last_no_longer_than_the_others() -> None:
    turning = Turning(0.009, n_low=8)
    turning.bench.add([99] * 8, max_tokens=1, priority=0)
    turning.step()
    turning.bench.add([98] * 60, max_tokens=4, priority=9)
    works = [planned.work for _ in range(30) if (planned := turning.step()) is not None]
    assert all(not n_rows or not n_tokens for n_rows, n_tokens, _ in works)
    assert sum(n_tokens for _, n_tokens, _ in works) == 60
    assert max(n_tokens for _, n_tokens, _ in works) <= 16  # the least chunk


def test_prompts_and_decoding_sequences_share_steps_that_are_short_anyway() -> None:
    turning = Turning(0.06, n_low=4)
    turning.bench.add([99] * 8, max_tokens=1, priority=0)
    turning.step()
    turning.bench.add([98] * 60, max_tokens=4, priority=9)
    works = [planned.work for _ in range(6) if (planned := turning.step()) is not None]
    assert any(n_rows and n_tokens for n_rows, n_tokens, _ in works)


def test_they_share_steps_in_which_both_find_room_while_prompts_do_not_pile_up() -> None:
    turning = Turning(0.035, n_low=20, n_slots=24)  # 21 ms for those that decode
    turning.bench.add([99] * 8, max_tokens=1, priority=0)
    turning.step()
    turning.step()
    turning.bench.add([98] * 60, max_tokens=4, priority=9)
    works = [planned.work for _ in range(6) if (planned := turning.step()) is not None]
    assert all(n_rows for n_rows, _, _ in works)
    assert sum(n_tokens for _, n_tokens, _ in works) == 60


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=24),
    st.sampled_from([0.002, 0.006, 0.02]),
)
@examples(40)
def test_every_sequence_gets_all_its_tokens(asked: list[tuple[int, int, int]], urgent_step_s: float) -> None:
    turning = Turning(urgent_step_s, n_low=3, n_slots=6)
    for priority, n_prompt, n_tokens in asked:
        turning.bench.add([priority + 1] * n_prompt, max_tokens=n_tokens, priority=priority)
        turning.step()
    for _ in range(20_000):
        if not len(turning.bench.queues):
            break
        turning.step()
    assert sorted(s.number for s in turning.bench.ended) == list(range(1, len(asked) + 4))
