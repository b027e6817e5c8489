"""Ranks run a plan together or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.process.gang_agreement import EpochId, GangAgreement, epoch_id
from tests.support.depth import examples

DEADLINE_S = 60.0


def gang(tmp_path: Path, size: int) -> list[GangAgreement]:
    return [GangAgreement(tmp_path, rank, size) for rank in range(size)]


def test_epoch_ids_rise_with_incarnation_and_epoch() -> None:
    ids = [epoch_id(1, 1), epoch_id(1, 2), epoch_id(2, 1), epoch_id(3, 0)]
    assert ids == sorted(set(ids))


def test_a_plan_that_all_have_runs(tmp_path: Path) -> None:
    ranks = gang(tmp_path, 3)
    for rank in ranks:
        rank.note_epoch(EpochId(5))
        rank.note_plan(8)
    assert all(rank.wait(EpochId(5), 7) and rank.wait(EpochId(5), 8) for rank in ranks)


def test_a_plan_that_one_rank_missed_is_skipped(tmp_path: Path) -> None:
    has_it, missed_it = gang(tmp_path, 2)
    for rank in (has_it, missed_it):
        rank.note_epoch(EpochId(5))
        rank.note_plan(7)
    has_it.note_plan(8)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(has_it.wait, EpochId(5), 8)
        assert not answer.done()
        missed_it.note_epoch(EpochId(6))
        assert answer.result(DEADLINE_S) is False
    assert has_it.wait(EpochId(5), 7)


def test_no_step_has_a_limit_while_a_rank_compiles(tmp_path: Path) -> None:
    """The others wait for it in a collective: they do not hang, however long it takes."""
    compiles, waits, idle = gang(tmp_path, 3)
    assert (waits.limit_s(0.4, 1.0), idle.limit_s(0.0, 0.0), compiles.limit_s(0.4, 1.0)) == (1.0, 0.0, 1.0)
    assert compiles.limit_s(0.9, 0.0) == 0.0
    assert waits.limit_s(0.9, 1.0) == 0.0
    assert compiles.limit_s(2.0, 1.0) == 1.0
    assert waits.limit_s(2.0, 1.0) == 1.0, "from now on the limit counts again"


def test_limits_and_plans_are_apart(tmp_path: Path) -> None:
    ranks = gang(tmp_path, 2)
    for rank in ranks:
        rank.note_epoch(EpochId(5))
        rank.note_plan(8)
        rank.limit_s(0.9, 0.0)
    assert all(rank.wait(EpochId(5), 8) for rank in ranks)


def test_a_rank_without_a_file_says_nothing_about_limits(tmp_path: Path) -> None:
    assert GangAgreement(tmp_path, 0, 2).limit_s(0.9, 1.0) == 1.0


def test_a_late_rank_is_waited_for(tmp_path: Path) -> None:
    early = GangAgreement(tmp_path, 0, 2)
    early.note_epoch(EpochId(1))
    early.note_plan(1)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(early.wait, EpochId(1), 1)
        late = GangAgreement(tmp_path, 1, 2)
        late.note_epoch(EpochId(1))
        late.note_plan(1)
        assert answer.result(DEADLINE_S) is True


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), min_size=1, max_size=12))
@examples(30)
def test_ranks_always_come_to_the_same_answer(epochs: list[tuple[int, int, bool]]) -> None:
    """Each epoch: how many plans reach rank 0, how many rank 1, and whether rank 1 gets the epoch's Reset at all."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ranks = gang(Path(folder), 2)
        answers: list[list[tuple[EpochId, int]]] = [[], []]
        held: list[list[tuple[EpochId, int]]] = [[], []]
        for number, (first, second, is_received) in enumerate([*epochs, (0, 0, True)]):
            for rank, count in ((0, first), (1, second)):
                if rank == 0 or is_received:
                    held[rank] += [(EpochId(number), end) for end in range(1, count + 1)]

        def receive(rank: int) -> None:
            for number, (first, second, is_received) in enumerate([*epochs, (0, 0, True)]):
                if rank == 0 or is_received:
                    ranks[rank].note_epoch(EpochId(number))
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
