"""Records which pages the sequences of a scheduler had; `python -m ops.bench cache` replays them with other policies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from actors.actor import Actor
from actors.pages.traced_request import TracedRequest, runs_of
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS

_MOST_PAGES = 1_000_000  # different ones; about 100 bytes of memory each. Then the record is complete
_BUFFER_BYTES = 1 << 16


class TraceRecorder:
    """Writes a line for each sequence that has been in a slot, when it ends. Each incarnation writes a file of its own, such as
    `scheduler-0.3.jsonl`. Lines are written 64 KiB at a time; a killed scheduler leaves the last ones unwritten.

    directory: "" to record nothing. A disk that refuses the file ends the record with a warning, and nothing else.
    """

    def __init__(self, actor: Actor, directory: str, file_name: str) -> None:
        self._actor = actor
        self._began_s = time.monotonic()
        self._numbers: dict[int, int] = {}  # by content hash
        self._file: BinaryIO | None = None
        if directory:
            try:
                self._file = (Path(directory) / file_name).open("wb", buffering=_BUFFER_BYTES)
            except OSError as error:
                self._stop(error)

    def ended(self, sequence: Sequence) -> None:
        """A sequence has ended."""
        started_s = sequence.timeline.started_s
        if self._file is None or not started_s:
            return
        n_prompt, n_known = ((n - 1) // PAGE_TOKENS for n in (sequence.n_prompt, sequence.known))
        numbers = [self._numbers.setdefault(content[0], len(self._numbers)) for content in sequence.page_contents(n_known)]
        at_ms, took_ms = round((started_s - self._began_s) * 1e3), round((time.monotonic() - started_s) * 1e3)
        line = msgspec.json.encode(TracedRequest(max(at_ms, 0), max(took_ms, 0), n_prompt, runs_of(numbers)))
        try:
            self._file.write(line + b"\n")
        except OSError as error:
            self._stop(error)
        if len(self._numbers) >= _MOST_PAGES:
            self.close()

    def close(self) -> None:
        """Write what is left."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._stop(error)

    def _stop(self, error: OSError) -> None:
        self._file = None
        self._actor.log.warning("the trace of pages is not recorded", error=str(error))
