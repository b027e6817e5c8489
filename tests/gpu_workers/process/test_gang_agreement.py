"""Ranks run a plan together or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.process.gang_agreement import GangAgreement, life_number
from tests.support.depth import examples

DEADLINE_S = 10.0


def gang(tmp_path: Path, size: int) -> list[GangAgreement]:
    return [GangAgreement(tmp_path, rank, size) for rank in range(size)]


def test_lives_rise_with_incarnation_and_epoch() -> None:
    lives = [life_number(1, 1), life_number(1, 2), life_number(2, 1), life_number(3, 0)]
    assert lives == sorted(set(lives))


def test_a_plan_that_all_have_runs(tmp_path: Path) -> None:
    ranks = gang(tmp_path, 3)
    for rank in ranks:
        rank.note_life(5)
        rank.note_plan(8)
    assert all(rank.wait(5, 7) and rank.wait(5, 8) for rank in ranks)


def test_a_plan_that_one_rank_missed_is_passed_over(tmp_path: Path) -> None:
    has_it, missed_it = gang(tmp_path, 2)
    for rank in (has_it, missed_it):
        rank.note_life(5)
        rank.note_plan(7)
    has_it.note_plan(8)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(has_it.wait, 5, 8)
        assert not answer.done()
        missed_it.note_life(6)
        assert answer.result(DEADLINE_S) is False
    assert has_it.wait(5, 7)


def test_a_late_rank_is_waited_for(tmp_path: Path) -> None:
    early = GangAgreement(tmp_path, 0, 2)
    early.note_life(1)
    early.note_plan(1)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(early.wait, 1, 1)
        late = GangAgreement(tmp_path, 1, 2)
        late.note_life(1)
        late.note_plan(1)
        assert answer.result(DEADLINE_S) is True


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), min_size=1, max_size=12))
@examples(30)
def test_ranks_always_come_to_the_same_answer(lives: list[tuple[int, int, bool]]) -> None:
    """Each life: how many plans reach rank 0, how many rank 1, and whether rank 1 hears of the life at all."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ranks = gang(Path(folder), 2)
        answers: list[list[tuple[int, int]]] = [[], []]
        held: list[list[tuple[int, int]]] = [[], []]
        for life, (first, second, is_heard) in enumerate([*lives, (0, 0, True)]):
            for rank, count in ((0, first), (1, second)):
                if rank == 0 or is_heard:
                    held[rank] += [(life, end) for end in range(1, count + 1)]

        def receive(rank: int) -> None:
            for life, (first, second, is_heard) in enumerate([*lives, (0, 0, True)]):
                if rank == 0 or is_heard:
                    ranks[rank].note_life(life)
                    for end in range(1, (first, second)[rank] + 1):
                        ranks[rank].note_plan(end)

        def run(rank: int) -> None:
            answers[rank] = [plan for plan in held[rank] if ranks[rank].wait(*plan)]

        threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in (0, 1) for work in (receive, run)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        assert answers[0] == answers[1]
