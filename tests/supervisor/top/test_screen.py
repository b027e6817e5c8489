"""A screen fits into its terminal and shows what matters first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from messages.lifecycle.cache_figures import (
    AnswerFigures,
    CacheFigures,
    DiskFigures,
    ExchangeFigures,
    HostFigures,
    PrefixFigures,
    SharedFigures,
    SimilarFigures,
)
from messages.lifecycle.tree import TreeState
from supervisor.top.figures import ChildRow, GpuRow, TopFigures
from supervisor.top.screen import SortBy, View, curve, drawn
from supervisor.usage.tenant_lines import TenantUse

PREFIX = PrefixFigures(4096, 100, 1000, 5, 7, 1000, 670, 1.0, 10, 3.0)


USED = [TenantUse("team-b", 7_000_000, 91), TenantUse("team-a", 6_000_000, 12)]


ALL_CACHES = CacheFigures(
    host=HostFigures(9, 8, 7, 1_234, 0, 0.1, 5, 0, 3.0),
    disk=DiskFigures(9, 8, 7, 99_999, 0, 0.1, 5, 0, 3.0),
    exchange=ExchangeFigures(9, 8, 9_999, 0, 0.1),
    answers=AnswerFigures(9, 8, 1, 0, 3, 0, 3.0),
    shared=SharedFigures(9, 8, 7, 3.0, 70),
    similar=SimilarFigures(9, 8, 5, 95, 0, 3.0),
)


def row(
    name: str, state: str = "ready", restarts: int = 0, memory_bytes: int = 10, last_exit: str = "", age_s: float = 0.0
) -> ChildRow:
    return ChildRow(name, state, restarts + 1, restarts, 200.0, memory_bytes, 0, last_exit, age_s, "")


def figures(
    children: list[ChildRow], n_gpus: int = 0, no_answer_s: float = 0.0, more_caches: CacheFigures | None = None
) -> TopFigures:
    gpus = [GpuRow(str(n), 93.0, 70.1e9, 80e9, 651.0, 61.0) for n in range(n_gpus)]
    return TopFigures(
        TreeState.SERVING, "SmolLM2-135M-Instruct", "http://127.0.0.1:8000", "8 replicas", 3723.0, 1234.0, 400.0, 12.3,
        12, 3, 15, 2, 0.71, PREFIX, more_caches or CacheFigures(), children, gpus, USED, [TenantUse("team-a", 5_000_000, 2)],
        [0.0, 50.0, 100.0], no_answer_s,
    )  # fmt: skip


def lines(shown: TopFigures, view: View) -> list[str]:
    return drawn(shown, view).plain.split("\n")


def test_one_screen_of_80_by_24() -> None:
    died = row("worker/0.0", restarts=1, memory_bytes=200_000_000, last_exit="killed by SIGKILL", age_s=185.0)
    screen = lines(figures([died, row("gateway/0")], n_gpus=1), View())
    assert [line.rstrip() for line in screen] == [
        "serving  SmolLM2-135M-Instruct  http://127.0.0.1:8000  up 1 h 2 min",
        "8 replicas",
        "tokens/s        1,234  ▁▅█",
        "requests/s       12.3  prompt tokens/s 400",
        "queue               3  running 12  accepted 15  submitted again 2",
        "cache             67% of prompts found  27% used, 100 held of 4,096 pages",
        "speculation       71% of drafts accepted",
        "gpu 0            93 % busy  70.1 of 80 GB  651 W  61 °C",
        "tenants     tokens (requests): team-b 7,000,000 (91), team-a 6,000,000 (12)",
        "tenants     today (open): team-a 5,000,000 (2)",
        "",
        "process    state     life     up   memory  last cause of death",
        "worker/0.0 ready        2  3 min   200 MB  killed by SIGKILL, 3 min ago",
        "gateway/0  ready        1  3 min     0 MB",
        *[""] * 9,
        "q quit  p pause  s sort: start order",
    ]


@given(st.integers(0, 60), st.integers(0, 8), st.integers(40, 200), st.integers(18, 60), st.sampled_from(SortBy))
def test_it_fits_into_every_terminal(n_children: int, n_gpus: int, width: int, height: int, sort: SortBy) -> None:
    many = [row(f"worker/{n}.0", last_exit="out of memory (killed by the kernel)" * 3) for n in range(n_children)]
    screen = lines(figures(many, n_gpus), View(width, height, sort))
    assert len(screen) == height
    assert max(map(len, screen)) <= width


def test_every_cache_that_is_on_has_its_place_in_one_line_of_80_characters() -> None:
    screen = lines(figures([row("gateway/0")], more_caches=ALL_CACHES), View())
    assert screen[6] == "more caches host 1.2k  disk 99k  moved 9.9k  answers 100%  shared 70  similar 5%"
    assert (len(screen), screen[10].split()) == (24, [])
    some = CacheFigures(disk=ALL_CACHES.disk, answers=AnswerFigures(0, 0, 0, 0, 0, 0, 0.0))
    assert lines(figures([], more_caches=some), View())[6].rstrip() == "more caches disk 99k  answers -"
    assert not any(line.startswith("more caches") for line in lines(figures([]), View()))


def test_processes_that_do_not_fit_are_counted_and_the_troubled_come_first() -> None:
    many = [*(row(f"worker/{n}.0") for n in range(40)), row("gateway/0", "dead", 3, last_exit="killed")]
    screen = lines(figures(many), View(sort=SortBy.TROUBLE))
    assert screen[11].startswith("gateway/0")
    assert screen[-2].startswith("and 30 more")
    by_deaths = lines(figures(many), View(sort=SortBy.DEATHS))
    assert by_deaths[11].startswith("gateway/0")


def test_keys_orders_pauses_and_silence_are_said() -> None:
    order, seen = SortBy.TREE, []
    for _ in SortBy:
        seen.append(order)
        order = order.next
    assert order is SortBy.TREE
    assert set(seen) == set(SortBy)
    screen = lines(figures([], no_answer_s=4.2), View(is_paused=True))
    assert screen[0].startswith("no answer for 4 s")
    assert "p go on" in screen[-1]
    assert curve([], 5) == ""
    assert curve([0.0, 0.0], 5) == "▁▁"


def test_a_process_that_was_not_started_yet_is_not_shown_as_dead() -> None:
    standby = ChildRow("worker/0.0b", "dead", 0, 0, 0.0, 0, 0, "", 0.0, "")
    (line,) = [line for line in lines(figures([standby]), View()) if line.startswith("worker/0.0b")]
    assert line.split()[1:3] == ["not", "yet"]
