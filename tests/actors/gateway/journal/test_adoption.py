"""Journals of gateways that do not exist any more: each is adopted by one gateway, once, whatever dies meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.gateway.journal.frames import Kind
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import SequenceState, encode_record, encode_step
from actors.gateway.journal.restore import restore, restore_finished
from actors.gateway.journal.segments import unclaimed_folders
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.models.hash_chain_text import HashChainText
from tests.support.gateway.journal_file import SERVED, finish_blob, frames_in, opened, request_blob, unwanted, written
from tests.support.gateway.journal_writer import row_at, spec_of, token_of

MODEL = HashChainText()


async def foreign_journal(path: Path, first: int) -> None:
    """A closed journal with two requests: r<first> has two tokens and is unfinished, the next one has ended."""
    journal = opened(path)
    for number in (1, 2):
        journal.admission(number, request_blob(spec_of(first + number - 1)), lambda: None, unwanted)
    journal.step(encode_step([row_at(1, 0)], []), lambda: None)
    journal.step(encode_step([row_at(1, 1)], []), lambda: None)
    journal.finish(2, finish_blob(SequenceState(row_at(2, 0), Ended(reason="stop"))))
    await journal.close()


@pytest.mark.parametrize(
    ("index", "gateways", "adopted"),
    [(0, 1, [1, 2, 3, 12]), (0, 2, [2, 12]), (1, 2, [3]), (2, 4, []), (0, 4, [12]), (0, 0, [])],
)
def test_each_unclaimed_journal_has_one_heir(tmp_path: Path, index: int, gateways: int, adopted: list[int]) -> None:
    for number in (0, 1, 2, 3, 12):
        (tmp_path / f"journal-{number}").mkdir()
    (tmp_path / "journal-x").mkdir()
    (tmp_path / "journal-8").write_text("a file")
    found = unclaimed_folders(str(tmp_path / f"journal-{index}"), gateways)
    assert [path.name for path in found] == [f"journal-{number}" for number in adopted]


async def test_adopted_requests_get_numbers_of_their_new_journal_and_their_folder_goes(tmp_path: Path) -> None:
    await foreign_journal(tmp_path / "journal-1", 10)
    own = opened(tmp_path / "journal-0")
    own.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    await own.close()
    journal = Journal(str(tmp_path / "journal-0"), gateways=1)
    mine, adopted = journal.open()
    (finished,) = journal.finished
    assert (mine.number, adopted.number, finished.number, journal.adopted) == (1, 2, 3, {2, 3})
    request = restore(adopted, MODEL, 0.0)
    assert (request.spec.request, request.sequences[0].ids) == ("r10", [token_of(1, 0), token_of(1, 1)])
    answer = restore_finished(3, finished.record, SERVED, 0.0)
    assert (answer.spec.request, answer.sequences[0].ids) == ("r11", [token_of(2, 0)])
    journal.start()
    journal.request(2, request_blob(adopted.spec))
    journal.answer(3, encode_record(finished.aged()))
    await written(journal)
    assert (tmp_path / "journal-1").is_dir()
    journal.adopt_all()
    await written(journal)
    assert not (tmp_path / "journal-1").exists()
    await journal.close()
    assert [f.number for f in frames_in(tmp_path / "journal-0") if f.kind is not Kind.HEADER] == [1, 2, 3]


async def test_a_death_before_the_folder_is_gone_adopts_nothing_twice(tmp_path: Path) -> None:
    await foreign_journal(tmp_path / "journal-1", 10)
    journal = Journal(str(tmp_path / "journal-0"), gateways=1)
    (adopted,) = journal.open()
    journal.start()
    journal.request(adopted.number, request_blob(adopted.spec))
    await journal.close()  # the other request was not recorded yet, and the folder is still there
    again = Journal(str(tmp_path / "journal-0"), gateways=1)
    (mine,) = again.open()
    (finished,) = again.finished
    assert (mine.number, again.adopted) == (adopted.number, {finished.number})
    await again.close()


async def test_a_journal_that_another_process_holds_is_left_for_later(tmp_path: Path) -> None:
    other = opened(tmp_path / "journal-1")
    other.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    await written(other)
    journal = Journal(str(tmp_path / "journal-0"), gateways=1)
    assert journal.open() == []
    assert journal.adopted == set()
    journal.start()
    journal.adopt_all()
    await journal.close()
    assert (tmp_path / "journal-1").is_dir()
    await other.close()
