"""What the supervisor says: to a service manager, to a person, to a log, to an operator's tool."""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import structlog

from messages.lifecycle.lifecycle import Fault, MetricFamily
from messages.lifecycle.tree import ChildState, ChildStatus, StatusReport, TreeState
from supervisor.children.child_record import ChildRecord
from supervisor.logs import configure_logs
from supervisor.operator.display import Display
from supervisor.operator.notify import notify
from supervisor.operator.status_table import print_status, span_text, status_text
from tests.support.supervisor.trees import group


def test_a_service_manager_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60.0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1")
        assert manager.recv(100) == b"READY=1"


def test_a_service_manager_in_the_abstract_namespace_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # the kernel picks an abstract name
        manager.settimeout(60.0)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + manager.getsockname()[1:].decode())
        notify("STOPPING=1")
        assert manager.recv(100) == b"STOPPING=1"


def test_a_deaf_service_manager_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an address without a listener nor a missing address raises."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


@pytest.mark.usefixtures("restored_logging")
def test_every_line_of_a_log_names_actor_and_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs("json", "info", "gateway/0", 7)
    structlog.get_logger().info("own line", some=1)
    structlog.get_logger().debug("too quiet")
    logging.getLogger("uvicorn").warning("line of a library")
    warnings.warn("a warning of a library", FutureWarning, stacklevel=1)
    try:
        raise ValueError("bad")
    except ValueError:
        structlog.get_logger().exception("fault")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert "a warning of a library" in lines.pop(2)["event"]
    assert [(line["event"], line["actor"], line["incarnation"]) for line in lines] == [
        ("own line", "gateway/0", 7),
        ("line of a library", "gateway/0", 7),
        ("fault", "gateway/0", 7),
    ]
    assert "ValueError" in json.dumps(lines[2])


@pytest.mark.usefixtures("restored_logging")
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_log_shows_what_a_variable_held(log_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs(log_format, "info", "gateway/0", 7)

    def answer(prompt: str) -> None:
        raise ValueError("bad")

    for log in (structlog.get_logger(), logging.getLogger("uvicorn")):
        try:
            answer("a " + "secret")
        except ValueError:
            log.exception("fault")
    assert written.getvalue().count("answer") >= 2  # the frame is there
    assert "a secret" not in written.getvalue()


@pytest.mark.usefixtures("restored_logging")
def test_a_log_on_a_full_disk_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        configure_logs("json", "info", "gateway/0", 7)
        structlog.get_logger().info("own line")
        logging.getLogger("uvicorn").warning("line of a library")
        Display("m", "http://u", "").say("serving")
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):  # the disk was full all the time; no line above raised
            print("x" * 100_000, file=full, flush=True)
        with suppress(OSError):
            full.close()


@pytest.mark.usefixtures("restored_logging")
def test_console_lines_carry_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs("console", "warning", "gateway/0", 7)
    try:
        raise ValueError("bad")
    except ValueError:
        structlog.get_logger().exception("fault")
    assert "ValueError: bad" in written.getvalue()


def report(child: ChildStatus) -> StatusReport:
    """A tree of one child."""
    return StatusReport(state=TreeState.SERVING, uptime_s=3.0, model="m", url="http://u", children=[child])


def test_status_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    child = ChildRecord(group("gateway/0").children[0]).status(0.0, with_metrics=False)
    print_status(report(child), as_json=False)
    said = capsys.readouterr().out
    assert "gateway/0" in said
    assert "not yet" in said, "it has had no process, so it is not dead"
    print_status(report(child), as_json=True)
    assert json.loads(capsys.readouterr().out)["children"][0]["state"] == "dead"


def test_status_says_what_an_operator_asks_after_a_kill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    record = ChildRecord(
        group("worker/0.0").children[0], state=ChildState.ENDING, phase="frozen: no Progress for 2 s", n_starts=1, incarnation=1
    )
    record.end_incarnation("killed by SIGKILL", "killed", 100.0)
    child = record.status(180.0, with_metrics=False, restarts_left=298, has_spare=True)
    print_status(report(child), as_json=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("worker/0.0")]
    assert "last exit: killed by SIGKILL (frozen: no Progress for 2 s), 1 min 20 s ago" in line
    assert {"298", "warm", "dead"} <= set(line.split())


@pytest.mark.parametrize(("n_active", "said"), [(0, "0 requests left"), (1, "1 request left"), (3, "3 requests left")])
def test_status_says_how_many_requests_are_left_while_it_drains(n_active: int, said: str) -> None:
    record = ChildRecord(group("gateway/0").children[0])
    child = msgspec.structs.replace(record.status(0.0, with_metrics=False), statistics={"active": n_active})
    draining = msgspec.structs.replace(report(child), state=TreeState.DRAINING)
    assert status_text(draining, 80).startswith(f"draining, {said}  m  http://u")
    assert "left  m" not in status_text(report(child), 80)
    assert "ZeroMQ: ipc:///r/zeromq-0" in status_text(report(child), 80, "ipc:///r/zeromq-0").splitlines()


def test_status_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Sixteen replicas of four ranks, some of them in trouble, after days."""
    children = [
        ChildStatus(
            name=f"worker/{replica}.{rank}",
            incarnation=1234,
            pid=4_194_304,
            state=ChildState.DRAINING,
            phase="load (weights) 50%" if replica % 2 else "",
            restarts=299,
            uptime_s=59 * 60 + 59,
            beat_age_s=99.9,
            steps=123_456_789,
            busy_s=0.0,
            statistics={"tokens_computed": 1e12, "tokens_sampled": 1e9},
            metrics=[],
            memory_bytes=123_456_000_000,
            last_exit="exit status 1 (worker/0.0 failed in load: WeightsError: " + "x " * 60 if replica == 3 else "",
            last_exit_age_s=100.0,
        )
        for replica in range(16)
        for rank in range(4)
    ]
    children.append(ChildRecord(group("cache_directory/0").children[0]).status(0.0, with_metrics=False))
    layout = "16 replicas x tp 4 on NVIDIA H200, bfloat16"
    whole = StatusReport(
        state=TreeState.DEGRADED, uptime_s=3e5, model="llama-3.1-8b-instruct", url="http://127.0.0.1:8000",
        children=children, layout=layout,
    )  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    print_status(whole, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert layout in lines
    names = [line.split()[0] for line in lines if line.startswith(("worker", "cache_directory"))]
    assert names == [child.name for child in children]
    assert "    load (weights) 50%" in lines
    assert len(status_text(whole, 200).splitlines()) == 4 + len(children)
    assert "tokens_computed 1,000,000,000,000" in status_text(whole, 200), "and not 1e+12"


def test_the_status_names_the_processes_above_the_actors() -> None:
    whole = StatusReport(TreeState.SERVING, 1.0, "m", "u", [], supervisor_pid=12, parent_pid=10)
    assert "supervisor: pid 12  parent: pid 10" in status_text(whole, 80).splitlines()
    orphan = msgspec.structs.replace(whole, parent_pid=0, parent_deaths=2)
    assert "supervisor: pid 12  parent: none  deaths of the parent: 2" in status_text(orphan, 80).splitlines()


def test_the_last_words_of_a_fault_are_shown() -> None:
    record = ChildRecord(group("worker/0.0").children[0], state=ChildState.READY, incarnation=1)
    fault = Fault(doing="load", reason="OSError: gone", traceback="line 1\nline 2")
    assert not record.note_fault(fault)
    record.end_incarnation("exit status 1", "ended", 5.0)
    assert record.last_exit == "exit status 1 (worker/0.0 failed in load: OSError: gone)"
    record.incarnation, record.state = 2, ChildState.READY
    assert not record.has_reported_fault
    assert record.note_fault(fault)
    record.incarnation, record.state = 3, ChildState.READY
    record.end_incarnation("killed by SIGKILL", "killed", 6.0)
    assert record.last_exit == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("span_s", "text"), [(0.4, "0 s"), (59.9, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (350_000, "4 d 1 h")]
)
def test_spans(span_s: float, text: str) -> None:
    assert span_text(span_s) == text


def test_the_supervisor_measures_who_is_up() -> None:
    record = ChildRecord(group("gateway/0").children[0], state=ChildState.READY, n_starts=3)
    families: dict[str, MetricFamily] = {family.name: family for family in record.status(0.0, with_metrics=True).metrics}
    assert families["tardigrade_up"].samples[0].value == 1.0
    assert families["tardigrade_restarts"].samples[0].value == 2.0
    assert families["tardigrade_restarts"].samples[0].suffix == "_total"
    record.incarnation, record.state = 3, ChildState.READY
    record.end_incarnation("killed by SIGKILL", "killed", 6.0)
    (deaths,) = (family for family in record.status(7.0, with_metrics=True).metrics if family.name == "tardigrade_deaths")
    counts = {sample.labels["cause"]: sample.value for sample in deaths.samples}
    assert (counts["killed"], counts["hung"], sum(counts.values())) == (1.0, 0.0, 1.0)
