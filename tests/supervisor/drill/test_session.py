"""One call of `supervisor drill`."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from messages.errors import ConfigError
from messages.outcomes import ExitCode
from supervisor.directories.run_dir_files import SERVER
from supervisor.drill import session
from supervisor.drill.figures import Round
from supervisor.drill.run import DrillPlan, DrillResult, Reference, headers_of, length_of
from supervisor.drill.session import DrillOptions, plan_of, title_of, url_of
from supervisor.drill.streams import DrillStream


def options_of(rounds: int, streams: int) -> DrillOptions:
    """Of a drill with so many rounds and streams."""
    return DrillOptions(
        url="http://127.0.0.1:1", port=None, faults=("kill:worker",), rounds=rounds, streams=streams, prompt_words=8,
        max_tokens=16, deadline_s=9.0, model="", api_key="", ignore_eos=True, seed=0, run_dir=None,
        json_path=None, svg_path=None,
    )  # fmt: skip


def plan(rounds: int, streams: int) -> DrillPlan:
    """The plan of the same drill."""
    return plan_of(options_of(rounds, streams))


@pytest.mark.parametrize(
    ("rounds", "streams", "said"),
    [(1, 1, "1 stream of 16 tokens, 1 round of each fault"), (5, 2, "2 streams of 16 tokens, 5 rounds of each fault")],
)
def test_the_title_counts_in_plain_english(rounds: int, streams: int, said: str) -> None:
    assert title_of(plan(rounds, streams), "m") == f"m at http://127.0.0.1:1: {said}"


def test_the_length_is_told_from_that_of_the_streams_and_the_faults() -> None:
    assert length_of(plan(1, 1), 4.0).startswith("1 round follows, which takes at least 5 s; Ctrl-C")
    paused = plan_of(replace(options_of(10, 1), faults=("kill:worker", "pause:gateway:7.5")))
    assert length_of(paused, 4.0).startswith(
        "20 rounds follow, which take at least 3 minutes; --rounds 1 and"
    )  # 10 * (5 + 12.5) s


def test_the_server_is_found_by_its_url_its_port_or_its_run_directory(tmp_path: Path) -> None:
    assert url_of(None, None, None) == "http://127.0.0.1:8000"
    assert url_of(None, 81, tmp_path) == "http://127.0.0.1:81"
    assert url_of("http://h:1", 81, tmp_path) == "http://h:1"
    (tmp_path / SERVER).write_text('{"url": "https://0.0.0.0:81"}')
    assert url_of(None, 81, tmp_path) == "https://localhost:81"
    assert url_of(None, 82, tmp_path) == "http://127.0.0.1:82"
    with pytest.raises(ConfigError, match="run_dir: expected a running server"):
        url_of(None, None, tmp_path)


def test_a_server_that_keeps_answers_computes_those_of_a_drill() -> None:
    assert headers_of(plan(1, 1)) == {"Cache-Control": "no-store"}
    assert headers_of(replace(plan(1, 1), api_key="k")) == {"Cache-Control": "no-store", "Authorization": "Bearer k"}


def test_a_drill_that_is_ended_before_its_first_fault_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stopped(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(session, "run_drill", stopped)
    assert session.run_session(options_of(1, 1)) is ExitCode.NOT_STARTED
    assert "nothing was measured" in capsys.readouterr().err


def test_a_fault_that_met_no_stream_is_no_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The answers may be so short that they are over when the fault comes."""
    over = DrillStream("a", pieces=["b", "c"], arrivals_s=[0.1, 0.2], is_complete=True)

    async def done(*_: object) -> DrillResult:
        calm = Round("no fault", "", 0.0, 0.0, [over])
        return DrillResult(
            "m", [calm, Round("kill:worker", "worker/0.0", 1.0, 0.1, [over])], Reference({"a": "bc"}, 0, calm), ()
        )

    monkeypatch.setattr(session, "run_drill", done)
    assert session.run_session(options_of(1, 1)) is ExitCode.NOT_STARTED
    assert "no stream was under way at kill:worker: --max-tokens 64" in capsys.readouterr().err
