"""Reads a journal: its requests, and the tokens and endings after their last whole record. Pure; damaged frames are skipped.

A request whose tokens stood in a damaged frame keeps the tokens before it. The later ones are left out and are computed again,
with the same seed, so they are the same. But the order in which several sequences of a request were shown is not known after
a damaged frame. So everything that follows it there belongs to a new run, that of the process which reads the journal, and
no event that an earlier process has shown of it is known by its number any more. The last frame of a file counts too: what a
death has cut off was shown to nobody, but a frame that was damaged later looks the same.

Finished requests stay encoded, and steps before the oldest unfinished request are not decoded, so a start takes the time of
reading the files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from actors.gateway.journal.clock import SegmentHeader
from actors.gateway.journal.frames import Damage, Frame, Kind
from actors.gateway.journal.records import (
    FinishedRecord,
    FinishRecord,
    Recovered,
    RequestRecord,
    StepRecord,
    StepRow,
    decode_finish,
    decode_remembered,
    decode_request,
    decode_spec,
    decode_states,
    decode_step,
    is_plain,
)
from actors.gateway.poison.remembered import Remembered
from actors.gateway.requests.request_spec import Ended
from actors.gateway.requests.stream_items import KEY_BITS, PING_ITEM, RUN_ITEM, SUSPICION_ROW
from messages.outcomes import EndReason

_ENDS_WITH_A_TOKEN: tuple[EndReason, ...] = ("stop", "length")
_header_decoder = msgspec.msgpack.Decoder(SegmentHeader)


@dataclass(slots=True)
class _Known:
    """The newest whole record of a request. `position`: number of its frame; times are the journal's clock."""

    position: int
    record: RequestRecord
    began_s: float
    finish: FinishRecord | None
    ended_s: float = 0.0
    read_s: float | None = None  # when its client had the whole answer


@dataclass(slots=True)
class _Growing:
    """An unfinished request, and its rows so far. Sequences by index."""

    position: int
    recovered: Recovered
    n_sequences: int
    run: int = 0  # the newest one
    n_tokens: dict[int, int] = field(default_factory=dict)
    lacks_tokens: set[int] = field(default_factory=set)  # with a later row that cannot be appended
    lost_order_at: int = -1  # where in `recovered.steps` a new run begins, because of damaged bytes; -1: nowhere


@dataclass(slots=True)
class _Tail:
    """The newest rows of the only sequence of a request: nothing but its next tokens, `parts`. They become one row, the first
    one's, because most rows of a journal are such and each row that is added by itself takes several times as long.
    `stop`: the number of its next token."""

    one: _Growing
    parts: list[bytes]
    stop: int

    def close(self) -> None:
        """Make one row of them."""
        steps = self.one.recovered.steps
        steps[-1] = msgspec.structs.replace(steps[-1], ids=b"".join(self.parts))
        self.one.n_tokens[0] = self.stop


class Replay:
    """Takes all frames of a journal in order, then returns the requests that they describe."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._steps: list[tuple[int, bytes]] = []  # position, payload
        self._n_frames = 0
        self.header: SegmentHeader | None = None  # of the newest file that says it
        self.last_s = 0.0  # the newest time of any frame
        self.next_number = 1
        self._remembered, self._remembered_s = Remembered(), 0.0  # and when it was recorded
        self._damaged_after: list[int] = []  # numbers of whole frames that are followed by damaged bytes
        self.unreadable: set[int] = set()  # numbers of requests whose frame is whole, but says nothing that can be used
        self.shortened: set[int] = set()  # numbers of requests that have lost tokens

    def add(self, frame: Frame | Damage) -> None:
        """Take the next frame."""
        if isinstance(frame, Damage):
            self._damaged_after.append(self._n_frames)
            return
        self._n_frames += 1
        if frame.time_s > self.last_s:
            self.last_s = frame.time_s
        if frame.number >= self.next_number:
            self.next_number = frame.number + 1
        if frame.kind is Kind.STEP:
            self._steps.append((self._n_frames, frame.payload))
            return
        self.unreadable.discard(frame.number)
        try:
            self._apply(frame)
        except (ValueError, TypeError):
            self._known.pop(frame.number, None)
            if frame.number:
                self.unreadable.add(frame.number)

    def results(self, now_s: float) -> tuple[list[Recovered], list[FinishedRecord]]:
        """Returns the unfinished and the finished requests, by number. `now_s`: the journal's clock."""
        growing: dict[int, _Growing] = {}
        finished: list[FinishedRecord] = []
        for number, known in sorted(self._known.items()):
            if known.finish is not None:
                age_s = max(known.ended_s - known.began_s, 0.0)
                record = msgspec.structs.replace(known.record, age_s=age_s, states=b"", finish=known.finish)
                read_age_s = None if known.read_s is None else max(now_s - known.read_s, 0.0)
                finished.append(FinishedRecord(number, record, max(now_s - known.ended_s, 0.0), read_age_s))
                continue
            try:
                growing[number] = _growing_of(number, known, now_s)
            except (ValueError, TypeError):
                self.unreadable.add(number)
        self._add_steps(growing)
        return [one.recovered for one in growing.values()], finished

    def remembered(self, now_s: float) -> Remembered:
        """What earlier processes have remembered about prompts and callers. `now_s`: the journal's clock."""
        return self._remembered.aged(max(now_s - self._remembered_s, 0.0))

    def _apply(self, frame: Frame) -> None:
        if frame.kind is Kind.HEADER:
            self.header = _header_decoder.decode(frame.payload)
            self.next_number = max(self.next_number, self.header.next_number)
        elif frame.kind in (Kind.REQUEST, Kind.ANSWER):
            record = decode_request(frame.payload)
            known = _Known(self._n_frames, record, frame.time_s - record.age_s, record.finish)
            if record.finish is not None:  # its age is counted up to its end
                known.ended_s = frame.time_s - record.finish.age_s
                known.began_s = known.ended_s - record.age_s
                if record.finish.read_age_s is not None:
                    known.read_s = frame.time_s - record.finish.read_age_s
            self._known[frame.number] = known
        elif frame.kind is Kind.REMEMBERED:
            self._remembered, self._remembered_s = decode_remembered(frame.payload), frame.time_s
        elif frame.kind is Kind.FORGET:
            self._known.pop(frame.number, None)
        elif frame.kind is Kind.READ:
            if (known := self._known.get(frame.number)) is not None:
                known.read_s = frame.time_s
        elif frame.kind is Kind.FINISH:
            known, finish = self._known.get(frame.number), decode_finish(frame.payload)
            if known is not None:
                known.finish, known.ended_s = finish, frame.time_s - finish.age_s

    def _add_steps(self, growing: dict[int, _Growing]) -> None:
        oldest = min((one.position for one in growing.values()), default=self._n_frames)
        damaged_after, tails = deque(self._damaged_after), dict[int, _Tail]()  # by key
        for position, step in self._decoded_from(oldest):
            while damaged_after and damaged_after[0] < position:
                _lose_order(growing.values(), damaged_after.popleft())
            for row in step.rows:
                tail = tails.get(row.key)
                if (
                    tail is not None
                    and row.first == tail.stop
                    and row.logprobs is None  # as `is_plain`, whose call would take as long as the rest
                    and row.prompt is None
                    and (n_bytes := len(row.ids))
                    and not n_bytes & 3
                ):
                    tail.parts.append(row.ids)
                    tail.stop += n_bytes >> 2
                    continue
                if (one := growing.get(row.key >> KEY_BITS)) is not None and one.position < position:
                    _close_tail(tails, one)
                    if not _add_row(one, row):
                        self.shortened.add(one.recovered.number)
                    elif one.n_sequences == 1 and is_plain(row) and row.first + (len(row.ids) >> 2) == one.n_tokens[0]:
                        tails[row.key] = _Tail(one, [row.ids], one.n_tokens[0])
            for key, ended in step.endings:
                one = growing.get(key >> KEY_BITS)
                if one is not None and one.position < position:
                    _close_tail(tails, one)
                    _add_ending(one, key, ended)
        for tail in tails.values():
            tail.close()
        for damaged_position in damaged_after:
            _lose_order(growing.values(), damaged_position)
        for one in growing.values():
            _number_run(one)

    def _decoded_from(self, oldest: int) -> Iterator[tuple[int, StepRecord]]:
        """The steps from this position on that can be decoded, each with its position."""
        for position, payload in self._steps:
            if position < oldest:
                continue
            try:
                step = decode_step(payload)
            except (ValueError, TypeError):
                continue
            yield position, step


def _close_tail(tails: dict[int, _Tail], one: _Growing) -> None:
    """Something else than the next tokens follows in this request."""
    tail = tails.pop(one.recovered.number << KEY_BITS, None)
    if tail is not None:
        tail.close()


def _growing_of(number: int, known: _Known, now_s: float) -> _Growing:
    record = known.record
    states = decode_states(record.states) if record.states else []
    age_s = max(now_s - known.began_s, 0.0)
    recovered = Recovered(number, decode_spec(record.spec), states, age_s=age_s, identity=record.identity)
    n_tokens = {state.row.key & ((1 << KEY_BITS) - 1): state.row.first + len(state.row.ids) // 4 for state in states}
    run = max((run for state in states[:1] for run in state.runs), default=0)
    return _Growing(known.position, recovered, recovered.spec.n_sequences, run, n_tokens)


def _lose_order(growing: Iterable[_Growing], position: int) -> None:
    """After the frame `position` bytes are damaged: all that follows of a request with several sequences is one new run."""
    for one in growing:
        if one.n_sequences > 1 and one.position <= position and one.lost_order_at < 0:
            one.lost_order_at = len(one.recovered.steps)
            one.recovered.steps.append(StepRow(one.recovered.number << KEY_BITS | RUN_ITEM, 0, b""))


def _number_run(one: _Growing) -> None:
    """The run after damaged bytes gets a number above all others, until the process that reads the journal has its own."""
    if one.lost_order_at >= 0:
        one.recovered.steps[one.lost_order_at] = StepRow(one.recovered.number << KEY_BITS | RUN_ITEM, one.run + 1, b"")
        one.recovered.has_lost_order = True


def _add_row(one: _Growing, row: StepRow) -> bool:
    """Append a row to its request; False if the tokens before it are missing, or it belongs to no sequence."""
    index = row.key & ((1 << KEY_BITS) - 1)
    if index == SUSPICION_ROW or (index in (PING_ITEM, RUN_ITEM) and not row.ids):
        one.run = max(one.run, row.first) if index == RUN_ITEM else one.run
        if index != RUN_ITEM or one.lost_order_at < 0:
            one.recovered.steps.append(row)
        return True
    n_tokens, n_bytes = one.n_tokens.get(index, 0), len(row.ids)
    if index >= one.n_sequences or n_bytes % 4 or not 0 <= row.first <= n_tokens:
        one.lacks_tokens.add(index)
        return False
    one.n_tokens[index] = max(n_tokens, row.first + n_bytes // 4)
    one.lacks_tokens.discard(index)  # a later process has computed them again
    one.recovered.steps.append(row)
    return True


def _add_ending(one: _Growing, key: int, ended: Ended) -> None:
    index = key & ((1 << KEY_BITS) - 1)
    if index in one.lacks_tokens and ended.reason in _ENDS_WITH_A_TOKEN:
        return  # the ending comes again with the tokens
    one.recovered.endings.setdefault(key, ended)
    one.recovered.steps.append(StepRow(key, one.n_tokens.get(index, 0), b""))
