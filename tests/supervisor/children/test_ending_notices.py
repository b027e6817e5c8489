"""A scheduler hears that a rank ends before its death is proven, with the cause that the proof will have."""

from __future__ import annotations

import os
import signal
import subprocess

from messages.lifecycle.lifecycle import Cause, RankEnding
from messages.lifecycle.tree import ChildState
from messages.wire.message import Message
from supervisor.children.child_record import ChildRecord
from supervisor.children.ending_notices import EndingNotices
from supervisor.children.exit_cause import cause_of
from supervisor.children.process import ExitStatus, decode_exit
from supervisor.parent.kernel import exit_code_of_ending
from tests.support.supervisor.memory_spawner import MemoryProcess
from tests.support.supervisor.trees import group


class Stage:
    """The scheduler and rank 0 of replica 1, which can serve; what was sent, and whether the kernel has killed a process."""

    def __init__(self) -> None:
        self.rank, self.scheduler = (ChildRecord(group(name).children[0]) for name in ("worker/1.0", "scheduler/1"))
        for record in (self.rank, self.scheduler):
            record.begin_incarnation(4, MemoryProcess(1000, lambda exit_status: None), "", 0.0)
            record.is_announced, record.state = True, ChildState.READY
        self.sent: list[tuple[str, Message]] = []
        self.oom_kills = 0
        records = {record.name: record for record in (self.rank, self.scheduler)}
        self.noted: list[tuple[str, Cause | None, int]] = []  # (name, killed for, messages that were sent before)
        self.notices = EndingNotices(
            records, lambda record, message: self.sent.append((record.name, message)), self.take_memory_kill, self._note
        )

    def _note(self, record: ChildRecord) -> None:
        self.noted.append((record.name, record.killed_for, len(self.sent)))

    def take_memory_kill(self) -> bool:
        """As `OutOfMemoryKills.take_rise`: a kill explains one death."""
        self.oom_kills -= 1
        return self.oom_kills >= 0

    def ends(self, returncode: int | None) -> list[Cause]:
        """The process of the rank begins to end. Returns the causes that its scheduler has heard."""
        self.notices.process_ends(self.rank, 4, None if returncode is None else decode_exit(returncode))
        assert all(to == "scheduler/1" and isinstance(message, RankEnding) for to, message in self.sent)
        return [message.cause for _, message in self.sent if isinstance(message, RankEnding)]


def test_a_scheduler_hears_why_its_rank_ends() -> None:
    assert Stage().ends(-signal.SIGSEGV) == ["crashed"]
    assert Stage().ends(1) == ["faulted"]


def test_a_rank_whose_end_is_not_known_yet_is_not_reported() -> None:
    assert Stage().ends(None) == []


def test_a_kill_by_the_kernel_explains_the_end_and_the_death_of_one_process() -> None:
    stage = Stage()
    stage.oom_kills = 1
    assert stage.ends(-signal.SIGKILL) == ["out_of_memory"]
    proven = cause_of(ExitStatus(-1, "SIGKILL"), stage.rank.killed_for, stage.take_memory_kill)
    assert proven == "out_of_memory"


def test_a_rank_with_a_successor_and_one_that_nobody_knows_are_not_reported() -> None:
    stage = Stage()
    stage.notices.connect(lambda record, incarnation: None, lambda name: name == "worker/1.0")
    assert stage.ends(-9) == []
    stage = Stage()
    stage.rank.is_announced = False
    assert stage.ends(-9) == []


def test_an_ordered_end_is_noted_before_the_scheduler_hears_of_it() -> None:
    """Or the rank would live on under the next supervisor, and its scheduler would wait for its death for ever."""
    stage = Stage()
    stage.notices.tell_ordered(stage.scheduler, "ended")
    assert (stage.noted, stage.sent) == ([], []), "it is no rank"
    stage.notices.tell_ordered(stage.rank, "ended")
    assert stage.noted == [("worker/1.0", "ended", 0)]
    assert [message.cause for _, message in stage.sent if isinstance(message, RankEnding)] == ["ended"]


def test_the_kernel_tells_how_a_process_ends_before_it_is_reaped() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as sleeper:
        assert exit_code_of_ending(sleeper.pid) is None
        sleeper.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        assert exit_code_of_ending(sleeper.pid) is None
        sleeper.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        assert exit_code_of_ending(sleeper.pid) == -signal.SIGKILL
    assert exit_code_of_ending(sleeper.pid) is None
