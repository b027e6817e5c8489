"""A damaged journal: a row costs as little as possible, and a file that is no journal is moved aside."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from actors.gateway.journal.journal import _SCHEMA, Journal
from actors.gateway.journal.records import StepRow, decode_step, encode_order, encode_step
from actors.gateway.journal.restore import restore
from actors.gateway.requests.order import Ended
from actors.gateway.text.tokenizer import HashChainText
from messages.errors import ConfigError
from messages.logprobs import TokenLogprobs
from tests.support.gateway.journal_file import key, moved_aside, opened, unwanted, written
from tests.support.gateway.journal_writer import order_of, row_at, token_of

MODEL = HashChainText()


async def test_a_torn_row_costs_its_own_tokens_only(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    for number in (1, 2):
        journal.admit(number, encode_order(order_of(number)), lambda: None, unwanted)
    journal.step(encode_step([row_at(1, 0)], []), lambda: None)
    journal.step(encode_step([row_at(2, 0)], [])[:-3], lambda: None)
    journal.step(b"", lambda: None)
    journal.step(encode_step([row_at(1, 1), row_at(2, 1)], []), lambda: None)
    await written(journal)
    await journal.close()
    again = Journal(str(tmp_path / "journal"))
    recovered = {r.number: r for r in again.open()}
    assert restore(recovered[1], MODEL, 0.0).sequences[0].ids == [token_of(1, 0), token_of(1, 1)]
    assert restore(recovered[2], MODEL, 0.0).sequences[0].ids == [], "token 0 is lost, so token 1 is computed again too"
    await again.close()


async def test_tokens_behind_a_torn_row_are_computed_again_and_read_at_the_next_start(tmp_path: Path) -> None:
    """The torn row stays in the file, and so do the rows behind it, with an ending that came too early."""
    path, first, second = tmp_path / "journal", Ended(reason="length", n_cached=1), Ended(reason="length", n_cached=2)
    journal = opened(path)
    for number in (1, 2):
        journal.admit(number, encode_order(order_of(number)), lambda: None, unwanted)
    for at in range(2):
        journal.step(encode_step([row_at(1, at), row_at(2, at)], []), lambda: None)
    journal.step(encode_step([row_at(1, 2)], [])[:-1], lambda: None)
    cancelled = Ended(reason="cancelled", detail="client_left")
    journal.step(encode_step([row_at(1, 3), row_at(2, 2)], [(key(1), first), (key(2), cancelled)]), lambda: None)
    await written(journal)
    await journal.close()
    journal = Journal(str(path))
    one, two = (restore(recovered, MODEL, 0.0).sequences[0] for recovered in journal.open())
    assert (one.ids, one.ended) == ([token_of(1, at) for at in range(2)], None)
    assert (two.ids, two.ended) == ([token_of(2, at) for at in range(3)], cancelled)
    journal.start()
    journal.step(encode_step([row_at(1, 2)], []), lambda: None)
    journal.step(encode_step([row_at(1, 3), row_at(1, 4)], [(key(1), second)]), lambda: None)
    await written(journal)
    await journal.close()
    journal = Journal(str(path))
    one = restore(journal.open()[0], MODEL, 0.0).sequences[0]
    assert (one.ids, one.ended) == ([token_of(1, at) for at in range(5)], second)
    await journal.close()


@pytest.mark.parametrize("row", [StepRow(key(1), 1, b"xyz"), StepRow(key(1), -1, b"wxyz"), StepRow(key(1) | 5, 1, b"wxyz")])
async def test_a_row_that_does_not_fit_is_left_out(tmp_path: Path, row: StepRow) -> None:
    journal = opened(tmp_path / "journal")
    journal.admit(1, encode_order(order_of(1)), lambda: None, unwanted)
    journal.step(encode_step([row_at(1, 0)], []), lambda: None)
    journal.step(encode_step([row], []), lambda: None)
    await written(journal)
    await journal.close()
    again = Journal(str(tmp_path / "journal"))
    (recovered,) = again.open()
    assert restore(recovered, MODEL, 0.0).sequences[0].ids == [token_of(1, 0)]
    await again.close()


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs(x)")
    connection.close()


def _corrupt(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 1415672420")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("CREATE TABLE requests(number INTEGER PRIMARY KEY, x)")
    connection.close()
    raw = bytearray(path.read_bytes())
    raw[100:] = b"\xff" * (len(raw) - 100)
    path.write_bytes(raw)


def _other_columns(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(_SCHEMA[0])
        connection.execute(_SCHEMA[1])
        connection.execute("CREATE TABLE requests(a)")
        connection.execute("CREATE TABLE steps(b)")
    connection.close()


@pytest.mark.parametrize("spoil", [lambda p: p.write_bytes(b"not a database" * 100), _foreign, _corrupt, _other_columns])
async def test_a_file_that_is_no_journal_is_moved_aside(tmp_path: Path, spoil) -> None:
    path = tmp_path / "journal"
    spoil(path)
    before = path.read_bytes()
    journal = opened(path)
    journal.admit(1, encode_order(order_of(1)), lambda: None, unwanted)
    await written(journal)
    assert journal.is_healthy
    await journal.close()
    assert [p.read_bytes() for p in moved_aside(tmp_path)] == [before]


async def test_a_blob_whose_type_has_become_text_is_read_all_the_same(tmp_path: Path) -> None:
    """One flipped bit of a row's serial type makes TEXT of a BLOB; its bytes are the same, and they are not UTF-8."""
    path = tmp_path / "journal"
    journal = opened(path)
    journal.admit(1, encode_order(order_of(1)), lambda: None, unwanted)
    journal.step(encode_step([StepRow(key(1), 0, b"\xff\xfe\x01\x00")], []), lambda: None)
    await written(journal)
    await journal.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE steps SET record = CAST(record AS TEXT)")
        other.execute("UPDATE requests SET admitted = CAST(admitted AS TEXT)")
    (recovered,) = Journal(str(path)).open()
    assert restore(recovered, MODEL, 0.0).sequences[0].ids == [0x1FEFF]
    assert moved_aside(tmp_path) == []


@pytest.mark.parametrize("damage", ["admitted = 7", "from_step = x'00'", "ended_s = 'no time'", "state = 'no state'"])
async def test_a_column_of_another_type_costs_its_own_request_only(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    for number in (1, 2):
        journal.admit(number, encode_order(order_of(number)), lambda: None, unwanted)
    await written(journal)
    await journal.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"UPDATE requests SET {damage} WHERE number = 1")
    again = Journal(str(path))
    assert [one.number for one in again.open()] == [2]
    assert again._unreadable == [1]
    await again.close()
    assert moved_aside(tmp_path) == []


async def test_a_request_that_cannot_be_read_gives_its_number_free(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    journal.admit(1, b"torn", lambda: None, unwanted)
    await written(journal)
    await journal.close()
    journal = opened(path)
    journal.admit(1, encode_order(order_of(1)), lambda: None, unwanted)
    await written(journal)
    await journal.close()
    again = Journal(str(path))
    assert [one.number for one in again.open()] == [1]
    await again.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkdir, "a directory"),
        (os.mkfifo, "a special file"),
        (lambda path: os.symlink(f"{path}.nowhere", path), "a link to nothing"),
    ],
)
def test_a_place_that_can_never_be_a_journal_is_named(
    tmp_path: Path, suffix: str, make: Callable[[str], None], kind: str
) -> None:
    place = f"{tmp_path / 'journal'}{suffix}"
    make(place)
    with pytest.raises(ConfigError, match=rf"^journal: .* at {re.escape(place)}, got {kind}; .* state_dir$"):
        Journal(str(tmp_path / "journal")).open()
    assert [entry.name for entry in tmp_path.iterdir()] == [f"journal{suffix}"]


async def test_a_link_to_a_journal_is_followed(tmp_path: Path) -> None:
    await opened(tmp_path / "there").close()
    (tmp_path / "journal").symlink_to(tmp_path / "there")
    await opened(tmp_path / "journal").close()
    assert moved_aside(tmp_path) == []


@pytest.mark.parametrize("dtype", [b"01f", b"(08", b"<O4", b"<f8"])
def test_a_damaged_dtype_is_a_value_error(dtype: bytes) -> None:
    """numpy parses a dtype as Python text, so that damaged ones raise SyntaxError and others."""
    logprobs = TokenLogprobs(chosen=np.zeros(2, "<f4"))
    blob = encode_step([StepRow(key(1), 0, bytes(8), logprobs)], [])
    assert decode_step(blob).rows[0].logprobs is not None
    with pytest.raises(ValueError, match="dtype"):
        decode_step(blob.replace(b"<f4", dtype))
