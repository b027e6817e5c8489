"""Rows of a journal that are joined before they are replayed: fewer rows, and the same request."""

from __future__ import annotations

import random

import numpy as np
import pytest

from actors.gateway.journal import restore as restore_file
from actors.gateway.journal.frames import Frame, Kind
from actors.gateway.journal.records import Recovered, RequestRecord, StepRow, encode_record, encode_spec, encode_step
from actors.gateway.journal.replay import Replay
from actors.gateway.journal.restore import joined, restore
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.requests.stream_items import KEY_BITS, PING_ITEM
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.logprobs import TokenLogprobs
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.gateway.journal_file import IDENTITY

NUMBER = 7
CANCELLED = Ended(reason="cancelled", detail="client_left")


def row_of(index: int, first: int, *ids: int) -> StepRow:
    return StepRow(NUMBER << KEY_BITS | index, first, np.array(ids, "<i4").tobytes())


def test_a_row_for_each_step_becomes_one_row() -> None:
    rows = [row_of(0, number, number + 50) for number in range(1000)]
    assert list(joined(rows)) == [row_of(0, 0, *range(50, 1050))]


def test_rows_that_say_more_than_tokens_stay_as_they_are() -> None:
    ping = StepRow(NUMBER << KEY_BITS | PING_ITEM, 0, b"")
    with_logprobs = StepRow(NUMBER << KEY_BITS, 2, row_of(0, 2, 5).ids, TokenLogprobs())
    rows = [
        row_of(0, 0, 1),
        row_of(0, 1, 2),
        with_logprobs,
        row_of(0, 3, 6),
        ping,
        row_of(0, 4, 7),
        row_of(0, 9, 8),
        row_of(0, 5),
    ]
    assert list(joined(rows)) == [row_of(0, 0, 1, 2), *rows[2:]]


@pytest.mark.parametrize("seed", range(20))
def test_joined_rows_give_the_same_request(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Steps of several sequences, with repetitions of tokens that a later process has computed again, and stop strings."""
    chance = random.Random(seed)
    n = chance.choice((1, 1, 3))
    stop = ["1 2"] if chance.random() < 0.5 else []
    spec = RequestSpec(
        request="r",
        api="completion",
        created_s=100.0,
        prompts=[np.array([1], "<i4").tobytes()],
        n=n,
        sampling=Sampling(),
        terms=Terms(max_tokens=500, stop=stop, stop_tokens=[9], min_tokens=chance.choice((0, 3))),
        is_resumable=True,
    )
    rows: list[StepRow] = []
    lengths = [0] * n
    for _ in range(60):
        index = chance.randrange(n)
        first = max(lengths[index] - chance.choice((0, 0, 0, 2)), 0)
        ids = [chance.randrange(10) for _ in range(chance.randint(1, 3))]
        lengths[index] = max(lengths[index], first + len(ids))
        rows.append(row_of(index, first, *ids))
    once = restore(Recovered(NUMBER, spec, [], rows, identity=IDENTITY), HashChainText(), 5.0)
    monkeypatch.setattr(restore_file, "joined", lambda rows: rows)
    row_by_row = restore(Recovered(NUMBER, spec, [], rows, identity=IDENTITY), HashChainText(), 5.0)
    assert seen(once) == seen(row_by_row)


@pytest.mark.parametrize("seed", range(20))
def test_a_journal_joins_rows_while_it_is_read(seed: int) -> None:
    """Rows of three requests, one with two sequences, by turns: repetitions, gaps, pings, log probabilities, endings."""
    chance, n_by_number = random.Random(seed), {1: 1, 2: 1, 3: 2}
    replay, rows, endings = Replay(), dict[int, list[StepRow]](), dict[int, dict[int, Ended]]()
    for number, n in n_by_number.items():
        record = RequestRecord(f"r{number}", IDENTITY, encode_spec(spec_of(n)))
        replay.add(Frame(Kind.REQUEST, number, 1.0, encode_record(record)))
        rows[number], endings[number] = [], {}
    lengths = dict.fromkeys(((number, i) for number, n in n_by_number.items() for i in range(n)), 0)
    for _ in range(120):
        step, ended = list[StepRow](), list[tuple[int, Ended]]()
        for (number, index), length in lengths.items():
            key = number << KEY_BITS | index
            first = max(length + chance.choice((0, 0, 0, 0, 0, -2, 1)), 0)
            n_ids = chance.randint(1, 2)
            logprobs = TokenLogprobs() if chance.random() < 0.1 else None
            step.append(StepRow(key, first, np.arange(first, first + n_ids, dtype="<i4").tobytes(), logprobs))
            if first <= length:
                rows[number].append(step[-1])
                lengths[number, index] = max(length, first + n_ids)
            if chance.random() < 0.05:
                step.append(StepRow(number << KEY_BITS | PING_ITEM, 0, b""))
                rows[number].append(step[-1])
            if chance.random() < 0.01 and first <= length:
                ended.append((key, CANCELLED))
                endings[number].setdefault(key, CANCELLED)
        replay.add(Frame(Kind.STEP, 0, 2.0, encode_step(step, ended)))
        for key, _ in ended:
            number = key >> KEY_BITS
            rows[number].append(StepRow(key, lengths[number, key & ((1 << KEY_BITS) - 1)], b""))
    found, _ = replay.results(3.0)
    for one in found:
        expected = Recovered(one.number, one.spec, [], rows[one.number], endings[one.number], identity=IDENTITY)
        assert seen(restore(one, HashChainText(), 5.0)) == seen(restore(expected, HashChainText(), 5.0))
        assert len(one.steps) < len(rows[one.number]) or len(endings[one.number]) == 2 or one.spec.n > 1


def spec_of(n: int) -> RequestSpec:
    prompt = np.array([1], "<i4").tobytes()
    terms = Terms(max_tokens=500)
    return RequestSpec(
        request="r", api="completion", created_s=1.0, prompts=[prompt], n=n, sampling=Sampling(), terms=terms, is_resumable=True
    )


def seen(request: Request) -> list[object]:
    """All that becomes of the rows of a request."""
    return [request.stream_items, request.runs, *((s.ids, s.texts, s.tail, s.ended, s.n_visible) for s in request.sequences)]
