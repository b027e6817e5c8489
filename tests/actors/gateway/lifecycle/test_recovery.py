"""A new incarnation takes over the journal's requests: each is kept, continued, cancelled or dropped."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from actors.gateway.journal.records import (
    FinishedRecord,
    FinishRecord,
    Recovered,
    RequestRecord,
    SequenceState,
    StepRow,
    encode_spec,
    encode_states,
)
from actors.gateway.journal.restore import restore, restore_finished
from actors.gateway.lifecycle.recovery import take_over_all
from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended, RequestSpec, model_changed
from actors.gateway.requests.stream_items import KEY_BITS
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.gateway.journal_file import IDENTITY, SERVED

MODEL = HashChainText()
LENGTH = Ended(reason="length")


class FakeManager:
    """What became of each request, by its number."""

    def __init__(self) -> None:
        self.taken_over: list[int] = []
        self.settled: list[int] = []
        self.kept: list[tuple[int, float]] = []

    def take_over(self, request: Request, identity: ModelIdentity, is_connected: bool) -> bool:
        assert identity == IDENTITY
        self.taken_over.append(request.number)
        return request.spec.is_resumable or is_connected

    @property
    def finished(self) -> FakeManager:
        """The requests that have ended are told to the same fake."""
        return self

    def keep(self, request: Request, now_s: float) -> None:
        assert now_s == 50.0
        self.settled.append(request.number)

    def keep_record(self, answer: FinishedRecord, now_s: float) -> None:
        assert now_s == 50.0
        self.kept.append((answer.number, answer.ended_age_s))


def recovered(number: int, *rows: StepRow, is_resumable: bool = True, ended: Ended | None = None) -> Recovered:
    spec = RequestSpec(
        request=f"r{number}",
        api="zeromq",
        created_s=100.0,
        prompts=[np.array([1], "<i4").tobytes()],
        sampling=Sampling(),
        terms=Terms(max_tokens=8),
        is_resumable=is_resumable,
    )
    endings = {} if ended is None else {number << KEY_BITS: ended}
    return Recovered(number, spec, [], list(rows), endings, identity=IDENTITY)


def row(number: int, first: int, *ids: int, index: int = 0) -> StepRow:
    return StepRow(number << KEY_BITS | index, first, np.array(ids, "<i4").tobytes())


def test_each_request_gets_what_its_record_says() -> None:
    manager = FakeManager()
    entries = [
        recovered(1, row(1, 0, 5, 6)),
        recovered(2, row(2, 0, 5), is_resumable=False),
        recovered(3, row(3, 0, 5), ended=LENGTH),
        recovered(5, row(5, 3, 5)),
        recovered(6, row(6, 0, 5, index=1)),
        recovered(7),
    ]
    answer = FinishedRecord(4, RequestRecord("r4", IDENTITY, b"not decoded"), 3.0)
    dropped: list[int] = []
    journal = SimpleNamespace(finished=[answer], adopted=set(), adopt_all=lambda: None, delete=dropped.append)
    assert take_over_all(manager, journal, entries, SERVED, 50.0, 2) == 2  # pyright: ignore[reportArgumentType]
    assert manager.taken_over == [1, 2, 7]
    assert (manager.settled, manager.kept, journal.finished) == ([3], [(4, 3.0)], [])
    assert dropped == [5, 6], "a gap, and a sequence that the request does not have"
    assert take_over_all(FakeManager(), journal, entries, SERVED, 50.0, 2, {"r2", "r5"}) == 3  # pyright: ignore[reportArgumentType]


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
    spec = recovered(4).spec
    finish = FinishRecord(encode_states([SequenceState(row(4, 0, 5), LENGTH)]), 1, is_cancelled=False, age_s=2.0)
    record = RequestRecord("r4", IDENTITY, encode_spec(spec), age_s=7.0, finish=finish)
    request = restore_finished(4, record, SERVED, 50.0)
    assert (request.is_over, request.is_recorded, request.n_generated) == (True, True, 1)
    assert request.ended_s - request.began_s == 7.0


def test_a_finished_answer_of_another_tokenizer_shows_no_text() -> None:
    finish = FinishRecord(encode_states([SequenceState(row(4, 0, 5), LENGTH)]), 1, is_cancelled=False, age_s=2.0)
    record = RequestRecord("r4", ModelIdentity(b"hash-chain", b"other"), encode_spec(recovered(4).spec), finish=finish)
    request = restore_finished(4, record, SERVED, 50.0)
    (sequence,) = request.sequences
    assert (request.is_over, sequence.texts, sequence.ended) == (True, [""], model_changed())
