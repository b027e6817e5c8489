"""A journal in a folder, for tests that write it, close it and read it again."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import Iterator
from pathlib import Path

from actors.gateway.journal.frames import Damage, Frame, Kind, read_frames
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import (
    FinishedRecord,
    FinishRecord,
    Recovered,
    RequestRecord,
    SequenceState,
    encode_record,
    encode_spec,
    encode_states,
)
from actors.gateway.journal.segments import read_segment, segments_in
from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.models.served_models import ServedModel, ServedModels
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.requests.stream_items import KEY_BITS
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.models.hash_chain_text import HashChainText
from tests.support.waiting import DEADLINE_S

IDENTITY = ModelIdentity(b"hash-chain", b"hash-chain")  # of the model that tests serve
SERVED = ServedModels(ServedModel(0, GatewaySettings(), HashChainText(), IDENTITY))


async def written(journal: Journal) -> None:
    """Wait until everything put so far is recorded."""
    done = asyncio.get_running_loop().create_future()
    journal.step(b"", lambda: done.set_result(None))
    async with asyncio.timeout(DEADLINE_S):
        await done


def lose_unwritten(journal: Journal) -> None:
    """What kill -9 does to entries that the writer's thread has not taken: nobody was told that they are recorded."""
    if journal._writer is not None:
        with contextlib.suppress(queue.Empty):
            while True:
                journal._writer._queue.get_nowait()


def opened(path: Path) -> Journal:
    """A started journal in a new folder, or in one without a readable request."""
    journal = Journal(str(path))
    assert journal.open() == []
    journal.start()
    return journal


async def read_again(path: Path) -> list[Recovered]:
    """The unfinished requests in a journal that is closed, or whose process was killed."""
    journal = Journal(str(path))
    try:
        return journal.open()
    finally:
        await journal.close()


async def finished_in(path: Path) -> list[FinishedRecord]:
    """The finished requests in a journal that is closed."""
    journal = Journal(str(path))
    journal.open()
    await journal.close()
    return journal.finished


def unwanted() -> None:
    """The `withdrawn` callback of requests that must be recorded."""
    raise AssertionError("withdrawn from a healthy disk")


def key(number: int) -> int:
    """The key of the first sequence of request `number`."""
    return number << KEY_BITS


def request_blob(spec: RequestSpec, *states: SequenceState, identity: ModelIdentity = IDENTITY, age_s: float = 0.0) -> bytes:
    """The record of an unfinished request."""
    encoded = encode_states(list(states)) if states else b""
    return encode_record(RequestRecord(spec.request, identity, encode_spec(spec), age_s, encoded))


def finish_blob(*states: SequenceState) -> bytes:
    """The record of the end of a request."""
    n_tokens = sum(len(state.row.ids) // 4 for state in states)
    return encode_record(FinishRecord(encode_states(list(states)), n_tokens, is_cancelled=False, age_s=0.0))


def files_in(folder: Path) -> list[Path]:
    """The files of a journal, oldest first."""
    return [segment.path for segment in segments_in(folder)]


def frames_in(folder: Path) -> Iterator[Frame]:
    """All frames of a journal, in order."""
    for segment in segments_in(folder):
        for frame in read_frames(read_segment(segment), segment.salt):
            assert not isinstance(frame, Damage)
            yield frame


def n_steps_in(folder: Path) -> int:
    """The number of recorded steps."""
    return sum(frame.kind is Kind.STEP for frame in frames_in(folder))


def spoil(folder: Path, nth: int) -> None:
    """Overwrite one byte in the frame with number `nth` of the oldest file; its LIFE frame is number 0."""
    segment = segments_in(folder)[0]
    data = bytearray(read_segment(segment))
    at = [i for i in range(len(data)) if data.startswith(b"\xf7TJ2", i)][nth]
    data[at + 40] ^= 0xFF
    segment.path.write_bytes(data)
