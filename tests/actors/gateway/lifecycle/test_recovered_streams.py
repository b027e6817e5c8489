"""Streams of several sequences over many lives of a gateway: what a client has seen stays true, whatever a journal lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.gateway.http.answers.stream_bytes import Begun, StreamBytes, stream_head
from actors.gateway.http.answers.stream_events import StreamEvents, run_in
from actors.gateway.http.formats.openai_chunks import ChunkWriter
from actors.gateway.journal.frames import Damage, Frame, Kind
from actors.gateway.journal.replay import Replay
from actors.gateway.lifecycle.recovery import take_over_all
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import Request
from tests.support.gateway.asgi_exchange import MODEL
from tests.support.gateway.journal_file import SERVED, request_blob
from tests.support.gateway.journal_writer import spec_of

_NOW_S = 1.0  # in every life: a damaged journal may not know how much time has passed
SPEC = msgspec.structs.replace(spec_of(1), api="completion", n=2)


class Life(NamedTuple):
    """One process: the sequences that get a token which is recorded, then those whose token is not, because the disk refuses.

    `begins_recorded` False: it dies before anything of it is recorded, or the disk refuses everything. `damaged`: after its
    death so many recorded steps are left before one that is damaged; None: none is. `is_torn`: it dies while it writes.
    """

    recorded: list[int]
    refused: list[int]
    begins_recorded: bool = True
    damaged: int | None = None
    is_torn: bool = False


@dataclass
class Gateway:
    """The journal of a gateway, and its present process."""

    frames: list[Frame | Damage] = field(default_factory=list)
    files: set[int] = field(default_factory=set)  # how many frames there are before each file; each process begins one
    incarnation: int = 0
    is_refusing: bool = False

    def start(self) -> Request:
        """The next process reads the journal, as a gateway does at its start."""
        self.incarnation += 1
        self.is_refusing = False
        self.files.add(len(self.frames))
        replay = Replay()
        for frame in self.frames:
            replay.add(frame)
        recovered, _ = replay.results(_NOW_S)
        taken: list[Request] = []
        manager = SimpleNamespace(take_over=lambda request, *_: not taken.append(request))
        take_over_all(manager, self.journal, recovered, SERVED, _NOW_S, self.incarnation)  # pyright: ignore
        return taken[0]

    @property
    def journal(self) -> Any:
        """What a process needs of its journal."""
        return SimpleNamespace(
            finished=[],
            adopted=set(),
            adopt_all=lambda: None,
            step=lambda record, done: self.write(Kind.STEP, 0, record),
            request=lambda number, record: self.write(Kind.REQUEST, number, record),
        )

    def write(self, kind: Kind, number: int, record: bytes) -> None:
        """Record one frame."""
        if not self.is_refusing:
            self.frames.append(Frame(kind, number, 0.0, record))

    def show(self, request: Request, index: int) -> None:
        """A sequence gets its next token. It is another one than all before."""
        rows, sequence = StepRows(), request.sequences[index]
        sequence.accept(len(sequence.ids), [10 + len(sequence.ids)])
        rows.add(sequence, len(sequence.ids) - 1)
        self.write(Kind.STEP, 0, rows.record())
        sequence.publish(len(sequence.ids), False)

    def damage(self, n_before: int) -> None:
        """The step after the first `n_before` is damaged."""
        steps = [at for at, frame in enumerate(self.frames) if isinstance(frame, Frame) and frame.kind is Kind.STEP]
        if n_before < len(steps):
            at = steps[n_before]
            self.frames[at] = Damage(0, 1, is_at_end=at + 1 in {*self.files, len(self.frames)})


def events_of(request: Request, start: int = 0) -> StreamEvents:
    return StreamEvents(request, ChunkWriter(request, "model", MODEL), start)


def number_of(event: bytes) -> int:
    return int(event.rpartition(b"\nid: ")[2].partition(b"\n")[0])


def bytes_of(request: Request) -> bytes:
    return StreamBytes(events_of(request), stream_head(request, is_kept_alive=True)).take()


def goes_on(request: Request, has: bytes, run: int) -> bool:
    """Whether a response goes on of which the client has these bytes, the newest ones of this run of the request."""
    begun, events = Begun(n_bytes=len(has), run=run), events_of(request)
    return not begun.exceeds_journal(request, events, begun.n_head_bytes(request, events))


def life() -> st.SearchStrategy[Life]:
    some = st.lists(st.integers(0, 1), max_size=4)
    return st.builds(Life, some, st.just([]) | some, st.booleans(), st.none() | st.integers(0, 8), st.booleans())


@given(st.lists(life(), max_size=5))
@example([Life([0, 1], [], damaged=0), Life([], [], begins_recorded=False), Life([0], []), Life([1], [])])
@example([Life([0, 1], []), Life([], [0, 0], begins_recorded=False), Life([], [1, 0], begins_recorded=False), Life([], [])])
@example([Life([0, 1], []), Life([0, 0], [], damaged=2), Life([], [])])
@example([Life([0], []), Life([0, 1], [], damaged=1), Life([1], []), Life([0], [], damaged=2), Life([], [])])
def test_no_event_and_no_byte_that_a_client_has_is_taken_for_another_one(lives: list[Life]) -> None:
    gateway = Gateway([Frame(Kind.REQUEST, 1, 0.0, request_blob(SPEC))])
    shown: dict[int, bytes] = {}
    has, run, is_whole = b"", 0, True  # of one response, which goes on as long as it can
    for one in lives:
        n_frames = len(gateway.frames)
        request = gateway.start()
        events = events_of(request).take()
        for number in shown:
            event = {number_of(event): event for event in events}.get(number)
            if event is None:
                with pytest.raises(ValueError, match="expected the id of an event that the journal has"):
                    events_of(request, number)
            assert event in (None, shown[number])
        if goes_on(request, has, run):
            assert bytes_of(request).startswith(has)
        else:
            assert not is_whole, "nothing was lost"
            has, run = b"", 0
        if not one.begins_recorded:
            gateway.frames[n_frames:] = [Damage(0, 1, is_at_end=True)] if one.is_torn else []
            gateway.is_refusing = True
        for index in one.recorded if one.begins_recorded else []:
            gateway.show(request, index)
        gateway.is_refusing = True
        for index in one.refused:
            gateway.show(request, index)
        if one.begins_recorded or one.refused:
            for event in events_of(request).take():
                shown[number_of(event)] = event
            stream = events_of(request)
            stream.take()
            has, run = bytes_of(request), max(run, stream.run)
        if one.is_torn and one.begins_recorded:
            gateway.frames.append(Damage(0, 1, is_at_end=True))
        if one.damaged is not None:
            gateway.damage(one.damaged)
        is_whole = is_whole and one.damaged is None and not one.refused


def test_a_request_after_damage_is_recorded_as_its_process_shows_it() -> None:
    """So that the next process finds the same order, and the responses of this one go on."""
    gateway = Gateway([Frame(Kind.REQUEST, 1, 0.0, request_blob(SPEC))])
    request = gateway.start()
    for index in (0, 1, 0):
        gateway.show(request, index)
    gateway.damage(1)
    request = gateway.start()
    assert (n_runs := len(request.runs)) == 2
    gateway.show(request, 1)
    has = bytes_of(request)
    run = request.run
    request = gateway.start()
    assert (len(request.runs), request.runs[-2]) == (n_runs + 1, run)
    assert goes_on(request, has, run)
    assert bytes_of(request) == has


def test_the_run_of_the_first_event_of_a_stream_is_read_as_well() -> None:
    assert run_in(b"data: {}\nid: 2000000001\nretry: 500\n\n") == 2
    assert run_in(b"data: {}\nid: 2000000001\n\n") == 2
    assert run_in(b": ping\n") == 0
    assert run_in(b"data: [DONE]\nid: 7\n\n") == 0
