"""Standard error that nobody reads: no writer waits for long, and what was lost is counted."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from supervisor import log_stream
from supervisor.log_stream import LogStream

LINE = "x" * 99 + "\n"
MOST_S = 5.0  # a loaded machine; a plain write would wait for ever


class Pipe:
    """A log that is read only when a test wants it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, 65_536)
        os.set_blocking(self.reader, False)

    def read(self) -> str:
        """All that it holds."""
        found = b""
        try:
            while piece := os.read(self.reader, 65_536):
                found += piece
        except BlockingIOError:
            pass
        return found.decode()


@pytest.fixture(params=["opened again", "of another user"])
def pipe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """A pipe that can be opened again, and one that cannot."""
    if request.param == "of another user":
        monkeypatch.setattr(log_stream, "_that_never_blocks", lambda fd: -1)
    pipe = Pipe()
    yield pipe
    os.close(pipe.reader)
    os.close(pipe.writer)


def test_a_log_that_nobody_reads_stops_nobody(pipe: Pipe) -> None:
    with LogStream(pipe.writer) as log:
        began_s = time.monotonic()
        for _ in range(10_000):
            log.write(LINE)
        assert time.monotonic() - began_s < MOST_S
        assert os.get_blocking(pipe.writer), "the shell that shares it would be surprised"


def test_what_click_prints_is_text(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with LogStream(pipe.writer) as log:
        with pytest.raises(TypeError, match="text: expected str, got bytes"):
            log.write(b"")  # pyright: ignore[reportArgumentType]
        monkeypatch.setattr(sys, "stderr", log)
        click.echo("supervisor: port: expected", err=True)
    assert pipe.read() == "supervisor: port: expected\n"


def test_what_was_lost_is_counted_and_said_as_soon_as_there_is_room(pipe: Pipe) -> None:
    with LogStream(pipe.writer, "lost {}\n".format) as log:
        for _ in range(1_000):
            log.write(LINE)
        kept = pipe.read()
        log.write("the next one\n")
        after = pipe.read()
    lost = next(int(line.removeprefix("lost ")) for line in after.splitlines() if line.startswith("lost "))
    assert kept.count(LINE) + (kept + after).count("x\n") - kept.count("x\n") + lost == 1_000
    assert after.endswith("the next one\n")
    whole = (kept + after).splitlines(keepends=True)
    assert set(whole) == {LINE, f"lost {lost}\n", "the next one\n"}, "no line is cut"


def test_a_log_that_is_read_loses_nothing(pipe: Pipe) -> None:
    with LogStream(pipe.writer) as log:
        said = ""
        for number in range(2_000):
            log.write(f"{number}\n")
            said += pipe.read()
    assert said == "".join(f"{number}\n" for number in range(2_000))


def test_a_long_text_is_written_whole_once_there_is_room(pipe: Pipe) -> None:
    with LogStream(pipe.writer) as log:
        log.write(LINE * 2_000)
        said = pipe.read()
        assert 0 < len(said) < 200_000
        for _ in range(4):
            log.write("next\n")
            said += pipe.read()
    assert said.startswith(LINE * 2_000)
    assert said.endswith("next\n")


def test_a_file_takes_every_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as file, LogStream(file.fileno()) as log:
        for _ in range(3_000):
            log.write(LINE)
        assert not log.isatty()
    assert (tmp_path / "log").read_text() == LINE * 3_000
