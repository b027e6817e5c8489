"""A damaged journal: every damaged byte costs its own frame, no token changes, and the gateway starts."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.journal.frames import Damage, Frame, Kind, encode_frame, read_frames
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import (
    Recovered,
    RequestRecord,
    SequenceState,
    StepRow,
    decode_step,
    encode_record,
    encode_step,
)
from actors.gateway.journal.restore import restore, restore_finished
from actors.gateway.journal.segments import read_segment, segments_in
from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.errors import ConfigError
from messages.generation.logprobs import TokenLogprobs
from tests.support.gateway.journal_file import (
    IDENTITY,
    SERVED,
    files_in,
    finish_blob,
    frames_in,
    key,
    opened,
    read_again,
    request_blob,
    spoil,
    unwanted,
    written,
)
from tests.support.gateway.journal_writer import row_at, spec_of, token_of

MODEL = HashChainText()
SALT = b"the salt"


def ids_of(recovered: Recovered) -> list[int]:
    return restore(recovered, MODEL, 0.0).sequences[0].ids


async def three_requests(path: Path) -> None:
    """A closed journal of two files: requests 1 and 2 are unfinished with 8 tokens, request 3 is finished with one."""
    for tokens in (range(4), range(4, 8)):
        journal = Journal(str(path))
        journal.open()
        journal.start()
        if not tokens.start:
            for number in (1, 2, 3):
                journal.admission(number, request_blob(spec_of(number)), lambda: None, unwanted)
        for at in tokens:
            journal.step(encode_step([row_at(1, at), row_at(2, at)], []), lambda: None)
        if tokens.start:
            journal.finish(3, finish_blob(SequenceState(row_at(3, 0), Ended(reason="stop"))))
        await journal.close()


@pytest.fixture(scope="module")
def whole_journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "journal"
    asyncio.run(three_requests(path))
    return path


def lives_of(path: Path, file: int, byte: int) -> set[int]:
    """The requests whose REQUEST frame has this byte of this file."""
    segment = segments_in(path)[file]
    data, at = read_segment(segment), 0
    for frame in read_frames(data, segment.salt):
        assert isinstance(frame, Frame)
        stop = at + len(encode_frame(frame.kind, 0, 0.0, frame.payload, SALT))
        if at <= byte < stop:
            return {frame.number} if frame.kind is Kind.REQUEST else set()
        at = stop
    raise AssertionError("the file is shorter")


def check_what_is_left(folder: Path, lost: set[int]) -> None:
    """The journal is read; no token is wrong, only the `lost` requests are missing, and it can be written."""
    journal = Journal(str(folder))
    recovered = {one.number: one for one in journal.open()}
    finished = {one.number: one for one in journal.finished}
    assert recovered.keys() | finished.keys() >= {1, 2, 3} - lost
    for number, one in recovered.items():
        ids = ids_of(one)
        assert ids == [token_of(number, at) for at in range(len(ids))]
    for number, answer in finished.items():
        request = restore_finished(number, answer.record, SERVED, 0.0)
        assert (number, request.sequences[0].ids) == (3, [token_of(3, 0)])
    journal._files.close()


@given(st.data())
def test_one_flipped_byte_costs_its_own_frame_and_changes_no_token(whole_journal: Path, data: st.DataObject) -> None:
    files = [(path.name, path.read_bytes()) for path in files_in(whole_journal)]
    nth = data.draw(st.integers(0, len(files) - 1))
    at = data.draw(st.integers(0, len(files[nth][1]) - 1))
    lost = lives_of(whole_journal, nth, at)
    with TemporaryDirectory() as name:
        for name_of_file, content in files:
            (Path(name) / name_of_file).write_bytes(content)
        spoilt = bytearray(files[nth][1])
        spoilt[at] ^= data.draw(st.integers(1, 255))
        (Path(name) / files[nth][0]).write_bytes(spoilt)
        check_what_is_left(Path(name), lost)


@given(st.data())
def test_cut_files_and_overwritten_sectors_change_no_token(whole_journal: Path, data: st.DataObject) -> None:
    files = [(path.name, path.read_bytes()) for path in files_in(whole_journal)]
    with TemporaryDirectory() as name:
        for name_of_file, content in files:
            kept = content[: data.draw(st.integers(0, len(content)))]
            start = data.draw(st.integers(0, len(kept)))
            noise = data.draw(st.binary(max_size=512))
            (Path(name) / name_of_file).write_bytes(kept[:start] + noise + kept[start + len(noise) :])
        check_what_is_left(Path(name), {1, 2, 3})


@given(
    st.lists(st.tuples(st.sampled_from(list(Kind)), st.integers(0, 2**64 - 1), st.binary(max_size=60)), max_size=8), st.data()
)
def test_frames_are_read_back_and_damage_is_placed(entries: list, data: st.DataObject) -> None:
    frames = [encode_frame(kind, number, 1.5, payload, SALT) for kind, number, payload in entries]
    whole = [Frame(kind, number, 1.5, payload) for kind, number, payload in entries]
    assert list(read_frames(b"".join(frames), SALT)) == whole
    if not frames:
        return
    nth = data.draw(st.integers(0, len(frames) - 1))
    spoilt = bytearray(frames[nth])
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= data.draw(st.integers(1, 255))
    read = list(read_frames(b"".join([*frames[:nth], bytes(spoilt), *frames[nth + 1 :]]), SALT))
    damage = Damage(sum(map(len, frames[:nth])), len(spoilt), is_at_end=nth == len(frames) - 1)
    assert read == [*whole[:nth], damage, *whole[nth + 1 :]]


def test_a_frame_inside_a_prompt_is_not_taken_for_one() -> None:
    """Whoever writes a frame into a prompt does not know the salt, so damage in front of it does not bring it to life."""
    forged = encode_frame(Kind.STEP, 0, 0.0, b"forged", b"a guess")
    spoilt = bytearray(encode_frame(Kind.REQUEST, 1, 0.0, forged, SALT))
    spoilt[6] ^= 1
    assert list(read_frames(bytes(spoilt), SALT)) == [Damage(0, len(spoilt), is_at_end=True)]


async def test_a_damaged_step_costs_its_own_tokens_only(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    for number in (1, 2):
        journal.admission(number, request_blob(spec_of(number)), lambda: None, unwanted)
    journal.step(encode_step([row_at(1, 0)], []), lambda: None)
    journal.step(encode_step([row_at(2, 0)], []), lambda: None)
    journal.step(encode_step([row_at(1, 1), row_at(2, 1)], []), lambda: None)
    await journal.close()
    spoil(path, 4)
    one, two = await read_again(path)
    assert ids_of(one) == [token_of(1, 0), token_of(1, 1)]
    assert ids_of(two) == [], "token 0 is lost, so token 1 is computed again too"


async def test_tokens_behind_a_damaged_step_are_computed_again_and_read_at_the_next_start(tmp_path: Path) -> None:
    """The damaged step stays in the file, and so do the steps behind it, with an ending that came too early."""
    path, first, second = tmp_path / "journal", Ended(reason="length", n_cached=1), Ended(reason="length", n_cached=2)
    cancelled = Ended(reason="cancelled", detail="client_left")
    journal = opened(path)
    for number in (1, 2):
        journal.admission(number, request_blob(spec_of(number)), lambda: None, unwanted)
    for at in range(2):
        journal.step(encode_step([row_at(1, at), row_at(2, at)], []), lambda: None)
    journal.step(encode_step([row_at(1, 2)], []), lambda: None)
    journal.step(encode_step([row_at(1, 3), row_at(2, 2)], [(key(1), first), (key(2), cancelled)]), lambda: None)
    await journal.close()
    spoil(path, 5)
    journal = Journal(str(path))
    one, two = (restore(recovered, MODEL, 0.0).sequences[0] for recovered in journal.open())
    assert (one.ids, one.ended) == ([token_of(1, at) for at in range(2)], None)
    assert (two.ids, two.ended) == ([token_of(2, at) for at in range(3)], cancelled)
    journal.start()
    journal.step(encode_step([row_at(1, 2)], []), lambda: None)
    journal.step(encode_step([row_at(1, 3), row_at(1, 4)], [(key(1), second)]), lambda: None)
    await journal.close()
    one = restore((await read_again(path))[0], MODEL, 0.0).sequences[0]
    assert (one.ids, one.ended) == ([token_of(1, at) for at in range(5)], second)


async def test_a_damaged_file_is_written_again_elsewhere_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    await three_requests(path)
    spoil(path, 4)
    damaged = files_in(path)[0]
    journal = Journal(str(path))
    recovered = {one.number: one for one in journal.open()}
    blobs = {number: request_blob(one.spec, SequenceState(StepRow(key(number), 0, b""))) for number, one in recovered.items()}

    def write_again(numbers: list[int]) -> None:
        for number in numbers:
            if number in blobs:
                journal.request(number, blobs[number])
            else:
                journal.delete(number)

    journal.on_pinned = write_again
    journal.start()
    journal.step(encode_step([], []), lambda: None)
    await written(journal)
    await written(journal)
    await journal.close()
    assert damaged not in files_in(path)
    assert [one.number for one in await read_again(path)] == [1, 2]


@pytest.mark.parametrize("row", [StepRow(key(1), 1, b"xyz"), StepRow(key(1), -1, b"wxyz"), StepRow(key(1) | 5, 1, b"wxyz")])
async def test_a_row_that_does_not_fit_is_left_out(tmp_path: Path, row: StepRow) -> None:
    journal = opened(tmp_path / "journal")
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    journal.step(encode_step([row_at(1, 0)], []), lambda: None)
    journal.step(encode_step([row], []), lambda: None)
    await journal.close()
    (recovered,) = await read_again(tmp_path / "journal")
    assert ids_of(recovered) == [token_of(1, 0)]


@pytest.mark.parametrize(
    "record",
    [
        b"no record",
        encode_record(RequestRecord("r1", IDENTITY, b"no spec")),
        encode_record(RequestRecord("r1", ModelIdentity(), b"", states=b"no states")),
    ],
)
async def test_a_request_that_cannot_be_read_costs_itself_only_and_is_forgotten(tmp_path: Path, record: bytes) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    journal.admission(1, record, lambda: None, unwanted)
    journal.admission(2, request_blob(spec_of(2)), lambda: None, unwanted)
    await journal.close()
    journal = Journal(str(path))
    assert [one.number for one in journal.open()] == [2]
    assert journal._unreadable == [1]
    journal.start()
    await journal.close()
    assert [(frame.kind, frame.number) for frame in frames_in(path)][-1] == (Kind.FORGET, 1)


async def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    journal = opened(path)
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    await journal.close()
    assert (path / "notes.txt").read_text() == "mine"
    assert [one.number for one in await read_again(path)] == [1]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: Path(path).write_text(""), "a file"),
        (os.mkfifo, "a special file"),
        (lambda path: os.symlink(f"{path}.nowhere", path), "a link to nothing"),
    ],
)
def test_a_place_that_can_never_be_a_journal_is_named(tmp_path: Path, make: Callable[[str], None], kind: str) -> None:
    place = str(tmp_path / "journal")
    make(place)
    with pytest.raises(ConfigError, match=rf"^journal: .* at {re.escape(place)}, got {kind}; .* state_dir$"):
        Journal(place).open()


@pytest.mark.parametrize("dtype", [b"01f", b"(08", b"<O4", b"<f8"])
def test_a_damaged_dtype_is_a_value_error(dtype: bytes) -> None:
    """numpy parses a dtype as Python text, so that damaged ones raise SyntaxError and others."""
    logprobs = TokenLogprobs(chosen=np.zeros(2, "<f4"))
    blob = encode_step([StepRow(key(1), 0, bytes(8), logprobs)], [])
    assert decode_step(blob).rows[0].logprobs is not None
    with pytest.raises(ValueError, match="dtype"):
        decode_step(blob.replace(b"<f4", dtype))
