"""Encodes the journal's records: one for each step message, one state for each sequence. Versioned. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from actors.gateway.requests.order import Ended, Order
from actors.gateway.requests.request import GrowingSequence, Logprobs, no_logprobs

RECORD_VERSION = 1


class StepRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """New tokens of one sequence: its key, the number of the first, and the ids as int32 bytes.

    With log-probabilities: `chosen` float32 [n], `top_ids` int32 and `top` float32 [n, top_width], as bytes.
    """

    key: int
    first: int
    ids: bytes
    chosen: bytes = b""
    top_width: int = 0
    top_ids: bytes = b""
    top: bytes = b""
    n_cached: int = 0  # cached prompt tokens; only in the row of token 0


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens and endings of one message."""

    version: int
    rows: list[StepRow]
    endings: list[tuple[int, Ended]]


class SequenceState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All tokens of one sequence, and its ending if it has one."""

    row: StepRow
    ended: Ended | None = None


class Recovered(msgspec.Struct):
    """One request as read from the journal."""

    number: int
    order: Order
    states: list[SequenceState]
    steps: list[StepRow] = []  # rows after `states`, in order
    endings: dict[int, Ended] = {}  # by key
    ended_s: float | None = None


_encoder = msgspec.msgpack.Encoder()
_step_decoder = msgspec.msgpack.Decoder(StepRecord)
_order_decoder = msgspec.msgpack.Decoder(Order)
_states_decoder = msgspec.msgpack.Decoder(list[SequenceState])


def encode_step(rows: list[StepRow], endings: list[tuple[int, Ended]]) -> bytes:
    """The blob of one step."""
    return _encoder.encode(StepRecord(RECORD_VERSION, rows, endings))


def decode_step(blob: bytes) -> StepRecord:
    """Decode the blob of one step. Raises: ValueError for a damaged blob or another version."""
    record = _step_decoder.decode(blob)
    if record.version != RECORD_VERSION:
        raise ValueError(f"version: expected {RECORD_VERSION}, got {record.version}")
    return record


def encode_order(order: Order) -> bytes:
    """The blob of a request's order."""
    return _encoder.encode(order)


def decode_order(blob: bytes) -> Order:
    """Decode a request's order. Raises: ValueError for a damaged blob."""
    return _order_decoder.decode(blob)


def encode_states(states: list[SequenceState]) -> bytes:
    """The blob of a checkpoint or of a finished request."""
    return _encoder.encode(states)


def decode_states(blob: bytes) -> list[SequenceState]:
    """Decode a checkpoint or a finished request. Raises: ValueError for a damaged blob."""
    return _states_decoder.decode(blob)


def row_of(sequence: GrowingSequence, first: int, stop: int) -> StepRow:
    """The row of tokens first .. stop - 1 of a sequence."""
    known, n_cached = sequence.ids, 0 if first else sequence.n_cached
    if stop == first + 1:  # the most frequent case
        ids = known[first].to_bytes(4, "little", signed=True)
    else:
        ids = np.array(known[first:stop], dtype="<i4").tobytes()
    if sequence.request.order.sampling.logprobs < 0:
        return StepRow(sequence.key, first, ids, n_cached=n_cached)
    some = sequence.logprobs_of(first, stop)
    width = some.top.shape[1]
    return StepRow(sequence.key, first, ids, some.chosen.tobytes(), width, some.top_ids.tobytes(), some.top.tobytes(), n_cached)


def state_of(sequence: GrowingSequence) -> SequenceState:
    """The state of a sequence with all its tokens."""
    return SequenceState(row_of(sequence, 0, len(sequence.ids)), sequence.ended)


def replay_row(sequence: GrowingSequence, row: StepRow) -> None:
    """Append a recorded row to a sequence. Raises: Gap, ValueError when the row does not fit."""
    logprobs = None
    if row.chosen:
        shape = (len(row.ids) // 4, row.top_width)
        logprobs = Logprobs(
            np.frombuffer(row.chosen, "<f4"),
            np.frombuffer(row.top_ids, "<i4").reshape(shape),
            np.frombuffer(row.top, "<f4").reshape(shape),
        )
    elif sequence.request.order.sampling.logprobs >= 0:
        logprobs = no_logprobs()
    sequence.accept(row.first, np.frombuffer(row.ids, "<i4").tolist(), logprobs, row.n_cached)
