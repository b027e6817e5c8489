"""What of open requests is told, and how often."""

from __future__ import annotations

from collections import Counter

from actors.gateway.tenants.open_allowances import PARTS, OpenAllowance, OpenAllowances

N = 40 * PARTS


def opened_with(*, n_beyond: int) -> tuple[OpenAllowances, list[OpenAllowance]]:
    opened = OpenAllowances()
    every = [OpenAllowance(f"r{n}", "acme", 1, 10, 1000, is_set_aside=n >= n_beyond) for n in range(N)]
    for one in every:
        opened.begin(one)
    for _ in range(PARTS):
        list(opened.news())
    return opened, every


def told(opened: OpenAllowances) -> list[str]:
    return [row.request for message in opened.news() for row in message.spent]


def test_requests_that_grow_are_told_by_turns_and_those_beyond_their_limit_each_time() -> None:
    opened, every = opened_with(n_beyond=3)
    counts = Counter[str]()
    for _ in range(PARTS):
        for one in every:
            one.tokens += 1
        rows = told(opened)
        assert len(rows) <= N // PARTS + 4
        counts.update(rows)
    assert counts == {one.key: 1 if one.is_set_aside else PARTS for one in every}


def test_an_end_is_told_at_once_and_what_is_over_is_not_told_again() -> None:
    opened, every = opened_with(n_beyond=1)
    for one in every[:3]:
        opened.end(one, 77)
    [message] = opened.overs()
    assert [(row.request, row.tokens, row.is_over) for row in message.spent] == [(one.key, 77, True) for one in every[:3]]
    assert [row for _ in range(PARTS) for row in told(opened)] == []
    assert {row.request for part in opened.list_all() for row in part.spent} == {one.key for one in every}
