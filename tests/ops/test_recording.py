"""The recorded terminal: what it writes can be played, and a real recording shows every kill and the right tokens."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from rich.text import Text

from ops.bench.own_server import OwnServer
from ops.recording import __main__ as recording
from ops.recording.cast import HEIGHT, WIDTH, Cast
from ops.recording.page import IMAGES
from ops.recording.terminal import svg


def played(path: Path) -> str:
    """Everything that a cast writes to the terminal."""
    header, *events = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, WIDTH, HEIGHT)
    times = [at_s for at_s, _, _ in events]
    assert times == sorted(times)
    assert {kind for _, kind, _ in events} == {"o"}
    return "".join(data for _, _, data in events)


def test_the_newest_lines_of_a_long_stream_are_shown(tmp_path: Path) -> None:
    cast = Cast("python chat.py")
    for number in range(40):
        cast.stream(f"line {number}\n")
    cast.command("kill -9 42", "worker/0.0")
    cast.save(tmp_path / "a.cast")
    text = played(tmp_path / "a.cast")
    assert "line 39" in text
    assert "kill -9 42" in text
    assert all(f"\x1b[{row};1H" not in text for row in range(HEIGHT + 1, HEIGHT + 20))


def test_the_recording_of_the_readme_shows_every_kill_and_is_small() -> None:
    text = played(recording.MEDIA / "kill.cast")
    assert all(f"# {name}" in text for _, name in recording.KILLS)
    said = f"{len(recording.KILLS)} processes killed, one connection, {recording.N_TOKENS} tokens, the same text"
    assert said in text
    drawn = (recording.MEDIA / "kill.svg").read_text(encoding="utf-8")
    assert len(drawn) < 200_000
    assert all(f">{word}</text>" in drawn for _, name in recording.KILLS for word in name.split())


def test_a_text_that_differs_is_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "own_server", lambda flags: nullcontext(OwnServer(8000, 0, 0.0, tmp_path / "log")))
    monkeypatch.setattr(recording, "_curl", lambda server: iter(["the", " text"]))
    monkeypatch.setattr(recording, "_stream_with_kills", lambda server, cast: ["the", " test"])
    result = CliRunner().invoke(recording.main, ["--out", str(tmp_path)])
    assert (result.exit_code, result.output) == (1, "the stream differs from the calm run; kill.cast shows where\n")
    assert "NOT the text of the calm run" in played(tmp_path / "kill.cast")
    assert not (tmp_path / "kill.svg").exists()


@pytest.mark.parametrize(("name", "words"), [("chat", ("/stats", "tokens/s")), ("top", ("tokens/s", "killed"))])
def test_the_pictures_of_the_terminal_show_what_they_are_about_and_need_no_other_host(
    name: str, words: tuple[str, ...]
) -> None:
    drawn = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert len(drawn) < 50_000
    assert set(re.findall(r"https?://[\w.]+", drawn)) <= {"http://www.w3.org", "http://127.0.0.1"}
    said = ElementTree.fromstring(drawn).itertext()
    assert set(words) <= set(" ".join(said).replace("\xa0", " ").split())


def test_a_picture_of_the_terminal_has_the_text_and_its_styles() -> None:
    drawn = svg(Text.assemble(("$ a command\n", "bold"), "a < b & c"), "a title")
    root = ElementTree.fromstring(drawn)
    said = "".join(root.itertext()).replace("\xa0", " ")
    assert all(part in said for part in ("a title", "$ a command", "a < b & c"))
    assert "font-weight: bold" in drawn
    assert drawn == svg(Text.assemble(("$ a command\n", "bold"), "a < b & c"), "a title"), "the same each time"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_real_recording_shows_every_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_draw", lambda out: None)
    result = CliRunner().invoke(recording.main, ["--model", "hash-chain", "--out", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    text = played(tmp_path / "kill.cast")
    assert all(name in text for _, name in recording.KILLS)
    assert f"{len(recording.KILLS)} processes killed, one connection, " in text
    assert f"{recording.N_TOKENS} tokens, the same text" in text
