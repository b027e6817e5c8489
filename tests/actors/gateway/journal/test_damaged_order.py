"""What a damaged journal says of the order in which several sequences were shown."""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.gateway.journal.records import StepRow, encode_step
from actors.gateway.journal.restore import restore
from actors.gateway.requests.stream_items import RUN_ITEM
from actors.gateway.text.models.hash_chain_text import HashChainText
from tests.support.gateway.journal_file import key, opened, read_again, request_blob, spoil, unwanted
from tests.support.gateway.journal_writer import row_at, spec_of

MODEL = HashChainText()


async def test_behind_a_damaged_step_several_sequences_begin_a_new_run(tmp_path: Path) -> None:
    """The step may have held something that was shown between the others, so what follows is not known by its place."""
    path = tmp_path / "journal"
    journal = opened(path)
    for number, n in ((1, 1), (2, 2)):
        spec = msgspec.structs.replace(spec_of(number), n=n)
        journal.admission(number, request_blob(spec), lambda: None, unwanted)
    second = StepRow(key(2) | 1, 0, row_at(2, 0).ids)
    for rows in ([row_at(1, 0), row_at(2, 0)], [row_at(2, 1)], [second, row_at(1, 1)]):
        journal.step(encode_step(rows, []), lambda: None)
    await journal.close()
    spoil(path, 4)
    for _ in range(2):  # each start finds the same
        one, two = (restore(recovered, MODEL, 0.0) for recovered in await read_again(path))
        assert (list(one.stream_items), one.runs) == ([0, 0], [])
        assert (list(two.stream_items), two.runs) == ([0, RUN_ITEM, 1], [1])
