"""How many pages are worth keeping, by what was needed in this window and the one before."""

from __future__ import annotations

from actors.pages.sizing.working_set import SizingRule, WorkingSet


class _Clock:
    """Time that a test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _working_set(spare_share: float = 0.0) -> tuple[WorkingSet, _Clock]:
    clock = _Clock()
    return WorkingSet(SizingRule(60.0, spare_share), clock), clock


def test_nothing_is_said_before_two_windows_have_ended() -> None:
    needs, clock = _working_set()
    clock.now_s += 59.9
    assert needs.size(0) is None
    clock.now_s += 0.1
    assert needs.size(0) is None, "the first window knows only itself"
    assert needs.size(0) is None, "the second window has just begun"
    clock.now_s += 60.0
    assert needs.size(0) == 0


def test_a_large_need_counts_for_two_windows_and_no_longer() -> None:
    needs, clock = _working_set()
    needs.held(40)
    needs.held(3)
    sizes = []
    for _ in range(4):
        clock.now_s += 60.0
        sizes.append(needs.size(2))
    assert sizes == [None, 40, 2, 2]


def test_pages_that_are_reused_are_needed_once_each_and_some_stay_beside_them() -> None:
    needs, clock = _working_set(spare_share=0.25)
    clock.now_s += 60.0
    assert needs.size(4) is None
    needs.reused([7, 8, 9])
    needs.reused([8, 9])
    clock.now_s += 60.0
    assert needs.size(4) == 9, "4 held, 3 reused, a quarter beside them, rounded up"
