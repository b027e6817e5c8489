"""The bytes of a stream are a function of what was recorded: whoever writes them, whenever, they are the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.http.answers.stream_bytes import StreamBytes, as_chunk, stream_head
from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.format import PING
from actors.gateway.http.formats.openai_chunks import ChunkWriter
from actors.gateway.journal import records
from actors.gateway.journal.records import Recovered, SequenceState, StepRow, decode_states, decode_step, encode_states
from actors.gateway.journal.restore import restore
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api, Ended, RequestSpec
from actors.gateway.requests.stream_items import PING_ITEM
from messages.generation.logprobs import TokenLogprobs
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.gateway.asgi_exchange import LENGTH, MODEL, request_of, show

FAILED = Ended(reason="failed", code="internal", detail="it broke")
CANCELLED = Ended(reason="cancelled", detail="client_left")


@dataclass
class Journaled:
    """A request whose steps are recorded and shown as the gateway does, and what a journal would have of it."""

    spec: RequestSpec
    states: list[SequenceState] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.request = Request(7, self.spec, MODEL.detokenizer, 0.0)
        self.request.is_recorded = True

    def step(
        self,
        tokens: list[tuple[int, int]],
        *,
        ping: bool = False,
        endings: list[tuple[int, Ended]] | None = None,
        is_lost: bool = False,
    ) -> None:
        """`tokens`: (sequence, id) in the order of a message; `endings`: (sequence, ending). `is_lost`: the disk refuses it."""
        rows = StepRows()
        for index, token in tokens:
            sequence = self.request.sequences[index]
            before, was_over = len(sequence.ids), sequence.ended is not None
            wide = self.spec.sampling.logprobs
            tops = {"top_ids": np.full(max(wide, 0), token, "<i4"), "top": np.full(max(wide, 0), -0.5, "<f4")}
            logprobs = TokenLogprobs(chosen=np.array([-0.5], "<f4"), width=wide, **tops) if wide >= 0 else None
            if sequence.accept(before, [token], logprobs):
                rows.add(sequence, before)
            if sequence.ended is not None and not was_over:
                rows.ended(sequence)
        for index, ended in endings or []:
            if self.request.sequences[index].end(ended):
                rows.ended(self.request.sequences[index])
        if ping:
            rows.pings.append(self.request)
        self.records += [] if is_lost else [rows.record()]
        for sequence, _, stop in rows.rows:
            sequence.publish(stop, False)
        if ping and not self.request.is_over:
            self.request.show_ping()
        for sequence in rows.endings:
            sequence.publish(sequence.n_visible, True)
            self.request.n_open -= 1

    def checkpoint(self) -> None:
        self.states = decode_states(encode_states(records.states_of(self.request)))
        self.records = []

    def restored(self) -> Request:
        """The request as the next incarnation restores it. Endings are marked as by the replay of a journal."""
        recovered = Recovered(7, self.spec, self.states, steps=[], endings={})
        for record in map(decode_step, filter(None, self.records)):
            recovered.steps += record.rows
            for key, ended in record.endings:
                recovered.endings[key] = ended
                recovered.steps.append(StepRow(key, 0, b""))
        return restore(recovered, MODEL, 0.0)


def spec_of(n: int, api: Api, stop: list[str], logprobs: int, with_usage: bool) -> RequestSpec:
    return RequestSpec(
        request="r",
        api=api,
        created_s=1e9,
        prompts=[np.array([1, 2], "<i4").tobytes()],
        sampling=Sampling(logprobs=logprobs),
        terms=Terms(max_tokens=100, stop=stop),
        n=n,
        is_resumable=True,
        with_usage=with_usage,
        echo=["1 2 "] if api == "completion" else [],
    )


def events_of(request: Request, start: int = 0) -> StreamEvents:
    return StreamEvents(request, ChunkWriter(request, "model", MODEL), start)


def id_of(event: bytes) -> int:
    """The id of an event; 0 if it has none."""
    found = re.search(rb"^id: (\d+)$", event, re.MULTILINE)
    return int(found[1]) if found else 0


STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=6),
        st.sampled_from(["ping", "take", "checkpoint", "end", "fail", "cancel"]),
    ),
    max_size=12,
)
STOPS = st.sampled_from([[], ["7 1"]])
ENDINGS = {"end": LENGTH, "fail": FAILED, "cancel": CANCELLED}


def play(journaled: Journaled, steps: list, events: StreamEvents) -> list[bytes]:
    """Let the request live through `steps`, end it, and return what a client reads that is served in between."""
    sent: list[bytes] = []
    n = len(journaled.request.sequences)
    for step in steps:
        if step == "take":
            sent += events.take()
        elif step == "ping":
            journaled.step([], ping=True)
        elif step == "checkpoint":
            journaled.checkpoint()
        elif isinstance(step, str):
            journaled.step([], endings=[(len(journaled.records) % n, ENDINGS[step])])
        else:
            journaled.step([(index % n, token) for index, token in step])
    journaled.step([(0, 5)], endings=[(index, LENGTH) for index in range(n)])
    return sent + events.take()


@given(STEPS, st.integers(1, 3), st.sampled_from(["chat", "completion"]), STOPS, st.integers(-1, 2), st.booleans())
def test_every_restored_request_gives_the_same_bytes_from_any_event_and_any_byte_on(
    steps: list, n: int, api: Api, stop: list[str], logprobs: int, with_usage: bool
) -> None:
    journaled = Journaled(spec_of(n, api, stop, logprobs, with_usage))
    sent = play(journaled, steps, events_of(journaled.request))
    again = journaled.restored()
    assert again.is_over
    assert events_of(again).take() == sent
    assert sent[-1].startswith(b"data: [DONE]\nid: ")
    for place, event in enumerate(sent):
        if id_of(event):
            assert events_of(again, id_of(event)).take() == sent[place + 1 :]
    head = stream_head(again, is_kept_alive=True)
    whole = head + b"".join(map(as_chunk, sent)) + b"0\r\n\r\n"
    for k in {0, 1, len(head), len(whole) // 2, len(whole) - 1, len(whole)}:
        rest = StreamBytes(events_of(again), head, skip_bytes=k)
        assert (rest.take(), rest.is_done, rest.n_missing) == (whole[k:], True, 0)


@given(STEPS, STEPS, st.integers(1, 3))
def test_a_stream_goes_on_in_the_next_incarnation_at_the_byte_where_the_last_was_killed(
    before: list, after: list, n: int
) -> None:
    """The first process dies between the steps; what it had written ends anywhere in what it could have written."""
    spec = spec_of(n, "completion", [], -1, True)
    undisturbed = Journaled(spec)
    plain = [step for step in before + after if step != "checkpoint"]
    head = stream_head(undisturbed.request, is_kept_alive=False)
    whole = head + b"".join(map(as_chunk, play(undisturbed, plain, events_of(undisturbed.request)))) + b"0\r\n\r\n"

    journaled = Journaled(spec)
    for step in before:
        if step == "ping":
            journaled.step([], ping=True)
        elif isinstance(step, str) and step in ENDINGS:
            journaled.step([], endings=[(len(journaled.records) % n, ENDINGS[step])])
        elif not isinstance(step, str):
            journaled.step([(index % n, token) for index, token in step])
    written = StreamBytes(events_of(journaled.request), head).take()
    for k in {0, len(written) // 2, len(written)}:
        second = Journaled(spec, list(journaled.states), list(journaled.records))
        second.request = second.restored()
        rest = StreamBytes(events_of(second.request), head, skip_bytes=k)
        first = rest.take()
        assert rest.n_missing == 0
        play(second, [step for step in after if step != "checkpoint"], events_of(second.request))
        assert written[:k] + first + rest.take() == whole


def test_a_written_part_that_the_records_do_not_have_is_reported() -> None:
    journaled = Journaled(spec_of(1, "completion", [], -1, False))
    head = stream_head(journaled.request, is_kept_alive=False)
    rest = StreamBytes(events_of(journaled.request), head, skip_bytes=len(head) + 1000)
    assert rest.take() == b""
    assert rest.n_missing > 0


def test_events_are_numbered_from_one_and_pings_have_no_number() -> None:
    journaled = Journaled(spec_of(2, "chat", [], -1, True))
    events = events_of(journaled.request)
    assert [id_of(event) for event in events.take()] == [0, 0], "the roles come before any item"
    journaled.step([(1, 5), (0, 6)])
    journaled.step([], ping=True)
    journaled.step([(0, 7)], endings=[(0, LENGTH), (1, LENGTH)])
    assert [id_of(event) for event in events.take()] == [1, 2, 0, 3, 4, 5, 6, 7]
    assert [event == PING for event in events_of(journaled.restored(), 2).take()] == [True, False, False, False, False, False]


def test_only_resumable_streams_have_ids() -> None:
    request = request_of()
    show(request, 5, ended=LENGTH)
    assert b"id: " not in b"".join(events_of(request).take())


def test_a_client_may_come_back_after_the_last_token_the_usage_or_the_end() -> None:
    journaled = Journaled(spec_of(1, "completion", [], -1, True))
    journaled.step([(0, 5)], endings=[(0, LENGTH)])
    for start, left in ((2, [3, 4]), (3, [4]), (4, [])):
        assert [id_of(event) for event in events_of(journaled.request, start).take()] == left
    with pytest.raises(ValueError, match="expected the id of an event that the journal has, got 5"):
        events_of(journaled.request, 5)


def test_an_event_that_was_never_sent_is_refused() -> None:
    journaled = Journaled(spec_of(1, "completion", [], -1, True))
    journaled.step([(0, 5)])
    with pytest.raises(ValueError, match="expected the id of an event"):
        events_of(journaled.request, 2)


def next_life(journaled: Journaled, now_s: float) -> Journaled:
    """The next process goes on with the request, `now_s` after its beginning."""
    following = Journaled(journaled.spec, list(journaled.states), list(journaled.records))
    following.request = following.restored()
    if len(following.request.sequences) > 1:
        following.request.begin_run(now_s, 2)
        following.records.append(records.run_record(following.request))
    return following


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), max_size=4), st.lists(st.integers(0, 1), max_size=4)), max_size=4))
def test_an_id_that_only_a_dead_process_has_shown_is_never_taken_for_another_event(
    lives: list[tuple[list[int], list[int]]],
) -> None:
    """Each process of a request with two sequences shows some tokens that are recorded, then some that are not, and dies."""
    journaled = Journaled(spec_of(2, "completion", [], -1, False))
    shown: dict[int, bytes] = {}
    for now_s, (recorded, lost) in enumerate(lives, 1):
        for index in recorded:
            journaled.step([(index, 7)])
        kept = events_of(journaled.request).take()
        for index in lost:
            journaled.step([(index, 7)], is_lost=True)
        present = {id_of(event): event for event in events_of(journaled.request).take()}
        for number in shown.keys() & present.keys():
            assert present[number] == shown[number]
        for number in shown.keys() - present.keys():
            with pytest.raises(ValueError, match="expected the id of an event that the journal has"):
                events_of(journaled.request, number)
        shown |= present
        journaled = next_life(journaled, float(now_s))
        assert events_of(journaled.request).take() == kept


@given(st.integers(1, 5), st.integers(0, 5), st.booleans())
def test_one_sequence_goes_on_after_tokens_that_are_computed_again(n_recorded: int, n_lost: int, has_ping: bool) -> None:
    journaled = Journaled(spec_of(1, "completion", [], -1, True))
    for _ in range(n_recorded):
        journaled.step([(0, 7)])
    for _ in range(n_lost):
        journaled.step([(0, 7)], is_lost=True)
    last = n_recorded + n_lost
    journaled = next_life(journaled, 0.0)
    events = events_of(journaled.request, last)
    journaled.step([], ping=has_ping)  # for another client, between tokens that this one has
    for _ in range(n_lost):
        journaled.step([(0, 7)])
        assert [event for event in events.take() if event != PING] == []
    journaled.step([(0, 8)], endings=[(0, LENGTH)])
    assert [id_of(event) for event in events.take() if event != PING] == [last + 1, last + 2, last + 3, last + 4]
    with pytest.raises(ValueError, match="expected the id of an event"):
        events_of(next_life(Journaled(journaled.spec), 0.0).request, 102)  # more than it may ever have


def test_rows_that_were_lost_are_shown_after_the_others() -> None:
    journaled = Journaled(spec_of(2, "completion", [], -1, False))
    journaled.step([(0, 5), (1, 6)], ping=True)
    journaled.checkpoint()
    journaled.states[0] = SequenceState(journaled.states[0].row, None, np.array([1, 1, PING_ITEM], "<i4").tobytes())
    assert list(journaled.restored().stream_items) == [1, PING_ITEM, 0]
