"""An answer without a key is kept for 20 s after its client has it, also when its gateway dies meanwhile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from actors.gateway.journal.retained import RetainedRequests
from actors.gateway.lifecycle.finished import FinishedRequests
from actors.gateway.requests.request import Request
from tests.support.gateway.journal_file import SERVED, finished_in, opened, request_blob, written
from tests.support.gateway.request_examples import request_of, spec_of


async def closed_with(path: Path, *, is_read: bool, is_written_again: bool) -> None:
    """A journal with one answer of a stream without a key."""
    journal = opened(path)
    try:
        request = _stream()
        kept = RetainedRequests(journal, SERVED, 600.0)
        journal.request(request.number, request_blob(request.spec))
        kept.keep(request, 1.0)
        if is_read:
            kept.read("r", 2.0)
            kept.read("r", 3.0)
        if is_written_again:
            kept.record_again([request.number], [], lambda request: [], 5.0)
        await written(journal)
    finally:
        await journal.close()


def _stream() -> Request:
    request = request_of(msgspec.structs.replace(spec_of(), request="r", is_resumable=True, ends_with_client=True))
    request.number = 1
    return request


@pytest.mark.parametrize("is_written_again", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
async def test_the_next_process_knows_that_an_answer_was_read(tmp_path: Path, is_read: bool, is_written_again: bool) -> None:
    await closed_with(tmp_path / "journal-0", is_read=is_read, is_written_again=is_written_again)
    [answer] = await finished_in(tmp_path / "journal-0")
    assert (answer.read_age_s is not None) == is_read
    if answer.read_age_s is not None:
        assert (3.0 if is_written_again else 0.0) <= answer.read_age_s < 60.0
    deleted: list[int] = []
    journal = SimpleNamespace(delete=deleted.append)
    successor = FinishedRequests(RetainedRequests(journal, SERVED, 600.0), 60.0)  # pyright: ignore[reportArgumentType]
    successor.keep_record(answer, 1000.0)
    assert successor.undelivered.n_pending(1000.0) == (not is_read), "a drain waits for clients that have not read"
    successor.expire(1021.0, takes_writes=True)
    assert deleted == ([answer.number] if is_read else [])
