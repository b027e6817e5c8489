"""Encodes the journal's records: one for each step message, one state for each sequence. Versioned. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.poison.remembered import Remembered
from actors.gateway.requests.best_of import n_readable
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.requests.stream_items import KEY_BITS, PING_ITEM, RUN_ITEM, SUSPICION_ROW
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.generation.sequences import Suspicion

RECORD_VERSION = 3
_INDEX = (1 << KEY_BITS) - 1  # the part of a key that is the index of a sequence
_DTYPES = ("<i4", "<f4")  # of the arrays in `TokenLogprobs`


class StepRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """New tokens of one sequence: its key, the number of the first, and the ids as int32 bytes. Other rows have the key of a
    sequence that cannot exist: `PING_ITEM` is a ping, without ids; `RUN_ITEM` is a new run, its number as `first`, without ids;
    `SUSPICION_ROW` is a suspicion, the index of the suspect as `first` and a `SuspectRecord` as `ids`.
    """

    key: int
    first: int
    ids: bytes
    logprobs: TokenLogprobs | None = None
    n_cached: int = 0  # cached prompt tokens; only in the row of token 0
    prompt: PromptLogprobs | None = None  # of the prompt, where they are wanted; only in the row of token 0


def is_plain(row: StepRow) -> bool:
    """True if a row is nothing but tokens of a sequence."""
    ids = row.ids
    return bool(ids) and not len(ids) & 3 and row.logprobs is None and row.prompt is None and row.key & _INDEX < SUSPICION_ROW


class SuspectRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Deaths of gangs that a sequence may have caused, and the schedulers whose gangs have died with it alone."""

    suspicion: Suspicion | None
    replicas_harmed: tuple[str, ...] = ()


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens and endings of one message."""

    version: int
    rows: list[StepRow]
    endings: list[tuple[int, Ended]]


class SequenceState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All tokens of one sequence, and its ending if it has one."""

    row: StepRow
    ended: Ended | None = None
    # `Request.stream_items` as int32 bytes, in the state of a request's first sequence; b"": all tokens, then the ending
    stream_items: bytes = b""
    runs: tuple[int, ...] = ()  # `Request.runs`, likewise
    suspect: SuspectRecord | None = None


class FinishRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The final state of a request."""

    states: bytes  # of all its sequences, see `encode_states`
    n_tokens: int  # in them that a client can read
    is_cancelled: bool  # at least one of its sequences was cancelled
    age_s: float  # from its end to this record
    is_keyless: bool = False  # its client has given no key that names it, and asked for nothing that is stored
    read_age_s: float | None = None  # from when its client had the whole answer to this record; None: it has not


class RequestRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything about one request up to now. A finished one stays encoded until a client asks for it."""

    request: str  # its id
    identity: ModelIdentity
    spec: bytes  # see `encode_spec`
    age_s: float = 0.0  # from its admission to this record
    states: bytes = b""  # of its sequences up to now; b"": they have no tokens
    finish: FinishRecord | None = None


class Recovered(msgspec.Struct):
    """One unfinished request as read from the journal."""

    number: int
    spec: RequestSpec
    states: list[SequenceState]
    # rows after `states`, in order; a row without ids stands where the ending of its sequence was recorded
    steps: list[StepRow] = []
    endings: dict[int, Ended] = {}  # by key, whose number may be another one in an adopted journal
    age_s: float = 0.0  # since its admission
    identity: ModelIdentity = ModelIdentity()
    has_lost_order: bool = False  # the last run of `steps` begins where the order of its sequences was lost, see `replay.py`


class FinishedRecord(msgspec.Struct, frozen=True):
    """One finished request, encoded as in the journal."""

    number: int
    record: RequestRecord
    ended_age_s: float  # since its end
    read_age_s: float | None = None  # since its client had the whole answer; None: it has not

    def aged(self) -> RequestRecord:
        """Its record as it is to be written now."""
        assert self.record.finish is not None, "it is finished"
        finish = msgspec.structs.replace(self.record.finish, age_s=self.ended_age_s, read_age_s=self.read_age_s)
        return msgspec.structs.replace(self.record, finish=finish)


def _array_out(value: Any) -> tuple[str, bytes]:
    """An array as its numpy dtype and its bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    raise TypeError(f"value: expected an array, got {type(value).__name__}")


def _array_in(kind: type, value: Any) -> Any:
    dtype, data = value
    if dtype not in _DTYPES:  # numpy evaluates other text, and its errors have many types
        raise ValueError(f"dtype: expected one of {_DTYPES}, got {dtype!r}")
    return np.frombuffer(data, dtype)


_encoder = msgspec.msgpack.Encoder(enc_hook=_array_out)
_step_decoder = msgspec.msgpack.Decoder(StepRecord, dec_hook=_array_in)
_spec_decoder = msgspec.msgpack.Decoder(RequestSpec)
_suspect_decoder = msgspec.msgpack.Decoder(SuspectRecord)
_request_decoder = msgspec.msgpack.Decoder(RequestRecord)
_remembered_decoder = msgspec.msgpack.Decoder(Remembered)
_finish_decoder = msgspec.msgpack.Decoder(FinishRecord)
_states_decoder = msgspec.msgpack.Decoder(list[SequenceState], dec_hook=_array_in)


def encode_step(rows: list[StepRow], endings: list[tuple[int, Ended]]) -> bytes:
    """The blob of one step."""
    return _encoder.encode(StepRecord(RECORD_VERSION, rows, endings))


def decode_step(blob: bytes) -> StepRecord:
    """Decode the blob of one step. Raises: ValueError for a damaged blob or another version."""
    record = _step_decoder.decode(blob)
    if record.version != RECORD_VERSION:
        raise ValueError(f"version: expected {RECORD_VERSION}, got {record.version}")
    return record


def encode_spec(spec: RequestSpec) -> bytes:
    """The blob of a request's specification."""
    return _encoder.encode(spec)


def decode_spec(blob: bytes) -> RequestSpec:
    """Decode a request's specification. Raises: ValueError for a damaged blob."""
    return _spec_decoder.decode(blob)


def encode_record(record: RequestRecord | FinishRecord | Remembered) -> bytes:
    """The payload of a REQUEST, ANSWER, FINISH or REMEMBERED frame."""
    return _encoder.encode(record)


def decode_request(blob: bytes) -> RequestRecord:
    """Decode the payload of a REQUEST frame. Raises: ValueError for a damaged blob."""
    return _request_decoder.decode(blob)


def decode_finish(blob: bytes) -> FinishRecord:
    """Decode the payload of a FINISH frame. Raises: ValueError for a damaged blob."""
    return _finish_decoder.decode(blob)


def decode_remembered(blob: bytes) -> Remembered:
    """Decode the payload of a REMEMBERED frame. Raises: ValueError for a damaged blob."""
    return _remembered_decoder.decode(blob)


def encode_states(states: list[SequenceState]) -> bytes:
    """The blob of the states of a request's sequences."""
    return _encoder.encode(states)


def decode_states(blob: bytes) -> list[SequenceState]:
    """Decode the states of a request's sequences. Raises: ValueError for a damaged blob."""
    return _states_decoder.decode(blob)


def n_tokens_in(blob: bytes) -> int:
    """All tokens of a request's sequences, also of those that a client cannot read. Raises: ValueError for a damaged blob."""
    return sum(state.row.first + len(state.row.ids) // 4 for state in decode_states(blob))


def row_of(sequence: GrowingSequence, first: int, stop: int) -> StepRow:
    """The row of tokens first .. stop - 1 of a sequence."""
    known, n_cached = sequence.ids, 0 if first else sequence.n_cached
    if stop == first + 1:
        ids = known[first].to_bytes(4, "little", signed=True)
        if first and not sequence.wants_logprobs:  # the most frequent case
            return StepRow(sequence.key, first, ids)
    else:
        ids = np.array(known[first:stop], dtype="<i4").tobytes()
    prompt = None if first or not stop else sequence.logprobs.prompt
    if not sequence.wants_logprobs:
        return StepRow(sequence.key, first, ids, n_cached=n_cached, prompt=prompt)
    return StepRow(sequence.key, first, ids, sequence.logprobs.of(first, stop), n_cached, prompt)


def ping_row(request: Request) -> StepRow:
    """The row of a ping."""
    return StepRow(request.number << KEY_BITS | PING_ITEM, 0, b"")


def run_record(request: Request) -> bytes:
    """The blob of a step in which the newest run of a request begins."""
    return encode_step([StepRow(request.number << KEY_BITS | RUN_ITEM, request.run, b"")], [])


def suspect_record(sequence: GrowingSequence) -> bytes:
    """The blob of a step in which a sequence comes under suspicion, or is free of it."""
    key = sequence.request.number << KEY_BITS | SUSPICION_ROW
    return encode_step([StepRow(key, sequence.index, _encoder.encode(_suspect_of(sequence)))], [])


def decode_suspect(blob: bytes) -> SuspectRecord:
    """Decode a suspicion. Raises: ValueError for a damaged blob."""
    return _suspect_decoder.decode(blob)


def _suspect_of(sequence: GrowingSequence) -> SuspectRecord:
    return SuspectRecord(sequence.suspicion, tuple(sorted(sequence.replicas_harmed)))


def states_of(request: Request, coming: Sequence[int] = ()) -> list[SequenceState]:
    """The states of a request's sequences, with all their tokens. `coming`: the items that are not visible yet, in order."""
    states = [
        SequenceState(row_of(s, 0, len(s.ids)), s.ended, suspect=_suspect_of(s) if s.suspicion is not None else None)
        for s in request.sequences
    ]
    items = [*request.stream_items, *coming]
    if len(states) > 1 or PING_ITEM in items:
        states[0] = msgspec.structs.replace(states[0], stream_items=np.array(items, "<i4").tobytes(), runs=tuple(request.runs))
    return states


def replay_row(sequence: GrowingSequence, row: StepRow) -> int:
    """Append a recorded row to a sequence; returns how many tokens were new. Raises: Gap, ValueError when it does not fit."""
    if row.prompt is not None:
        sequence.add_prompt_logprobs(row.prompt)
    return sequence.accept(row.first, np.frombuffer(row.ids, "<i4").tolist(), row.logprobs, row.n_cached)


def request_record(request: Request, identity: ModelIdentity, now_s: float, coming: Sequence[int] = ()) -> RequestRecord:
    """The record of an unfinished request: everything that its successor needs to go on.

    `now_s`: the monotonic clock. `coming`: its items that are not visible yet, in order.
    """
    is_begun = coming or request.stream_items or any(s.ids or s.suspicion is not None for s in request.sequences)
    states = encode_states(states_of(request, coming)) if request.spec.is_resumable and is_begun else b""
    return RequestRecord(request.spec.request, identity, encode_spec(request.spec), now_s - request.began_s, states)


def finish_record(request: Request) -> FinishRecord:
    """The record of a request that is over."""
    is_cancelled = any(s.ended is not None and s.ended.reason == "cancelled" for s in request.sequences)
    states, is_keyless = encode_states(states_of(request)), request.spec.ends_with_client and not request.spec.is_stored
    return FinishRecord(states, sum(n_readable(request)), is_cancelled, age_s=0.0, is_keyless=is_keyless)
