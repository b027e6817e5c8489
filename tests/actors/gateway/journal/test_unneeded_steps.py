"""Damage to steps of finished requests, which no request needs, changes nothing."""

from __future__ import annotations

from pathlib import Path

from actors.gateway.journal.frames import Kind, encode_frame
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import SequenceState, encode_step
from actors.gateway.requests.request_spec import Ended
from tests.support.gateway.journal_file import files_in, finish_blob, frames_in, opened, request_blob, unwanted
from tests.support.gateway.journal_writer import row_at, spec_of
from tests.support.waiting import DEADLINE_S

SALT = b"the salt"


async def test_no_flipped_bit_of_such_a_step_moves_the_clock_or_the_numbers_of_requests(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    journal.step(encode_step([row_at(1, 0)], []), lambda: None)
    journal.finish(1, finish_blob(SequenceState(row_at(1, 0), Ended(reason="stop"))))
    await journal.close()
    path, frames = files_in(tmp_path)[0], list(frames_in(tmp_path))
    step = [frame.kind for frame in frames].index(Kind.STEP)
    start = sum(len(encode_frame(frame.kind, 0, 0.0, frame.payload, SALT)) for frame in frames[:step])
    whole, n_bits = path.read_bytes(), 8 * len(encode_frame(Kind.STEP, 0, 0.0, b"", SALT))
    for bit in range(n_bits):
        spoilt = bytearray(whole)
        spoilt[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        again = Journal(str(tmp_path))
        assert again.open() == []
        assert (again.next_number, [one.number for one in again.finished]) == (2, [1])
        assert 0 <= again.finished[0].ended_age_s < DEADLINE_S
        assert 0 <= again._clock.now_s() < DEADLINE_S
        again._files.close()
