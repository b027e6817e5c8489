"""A new incarnation takes over the journal's requests: each is kept, continued, cancelled or dropped."""

from __future__ import annotations

import numpy as np
import pytest

from actors.gateway.dispatch.recovery import take_over_all
from actors.gateway.journal.records import Recovered, StepRow
from actors.gateway.journal.restore import restore
from actors.gateway.requests.order import Ended, Order
from actors.gateway.requests.request import KEY_BITS, Request
from actors.gateway.text.tokenizer import HashChainText
from messages.generation import Sampling, Terms

MODEL = HashChainText()
LENGTH = Ended(reason="length")


class Desk:
    """What became of each request, by its number."""

    def __init__(self) -> None:
        self.taken_over: list[int] = []
        self.settled: dict[int, float | None] = {}
        self.dropped: list[int] = []

    def take_over(self, request: Request) -> bool:
        self.taken_over.append(request.number)
        return request.order.is_resumable

    def keep_finished(self, request: Request, ended_s: float | None) -> None:
        self.settled[request.number] = ended_s

    def discard(self, number: int) -> None:
        self.dropped.append(number)


def recovered(
    number: int, *rows: StepRow, is_resumable: bool = True, ended: Ended | None = None, ended_s: float | None = None
) -> Recovered:
    order = Order(
        request=f"r{number}",
        api="front",
        created_s=100.0,
        prompts=[np.array([1], "<i4").tobytes()],
        sampling=Sampling(),
        terms=Terms(max_tokens=8),
        is_resumable=is_resumable,
    )
    endings = {} if ended is None else {number << KEY_BITS: ended}
    return Recovered(number, order, [], list(rows), endings, ended_s)


def row(number: int, first: int, *ids: int, index: int = 0) -> StepRow:
    return StepRow(number << KEY_BITS | index, first, np.array(ids, "<i4").tobytes())


def test_each_request_gets_what_its_record_says() -> None:
    desk = Desk()
    entries = [
        recovered(1, row(1, 0, 5, 6)),
        recovered(2, row(2, 0, 5), is_resumable=False),
        recovered(3, row(3, 0, 5), ended=LENGTH),
        recovered(4, row(4, 0, 5), ended_s=107.0, ended=LENGTH),
        recovered(5, row(5, 3, 5)),
        recovered(6, row(6, 0, 5, index=1)),
        recovered(7),
    ]
    assert take_over_all(desk, entries, MODEL, 50.0) == 2  # pyright: ignore[reportArgumentType]
    assert desk.taken_over == [1, 2, 7]
    assert desk.settled == {3: None, 4: 107.0}
    assert desk.dropped == [5, 6], "a gap, and a sequence that the order does not have"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (recovered(5, row(5, 3, 5)), "^journal: first: expected at most 0, got 3$"),
        (recovered(6, row(6, 0, 5, index=1)), "^key: expected a sequence below 1, got 1$"),
    ],
)
def test_a_record_that_contradicts_itself_is_named(entry: Recovered, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        restore(entry, MODEL, 0.0)


def test_a_finished_request_keeps_how_long_it_took() -> None:
    request = restore(recovered(4, row(4, 0, 5), ended_s=107.0, ended=LENGTH), MODEL, 50.0)
    assert (request.is_over, request.is_recorded, request.n_generated) == (True, True, 1)
    assert request.ended_s - request.began_s == 7.0
