"""`supervisor cache reset` on a whole real server: what it forgets does not come back with the next scheduler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from messages.outcomes import ExitCode
from tests.support.supervisor.command_line import RunningServer, call, serving

pytestmark = pytest.mark.slow

PROMPT = "a prompt of more than six pages of sixteen characters each, so that something is there to be forgotten"
N_PAGES = (len(PROMPT) + 8 - 1) // 16


def adopted(server: RunningServer, incarnation: int) -> int:
    """How many pages this incarnation of the scheduler has found in the vault, once its gang is ready."""
    pattern = rf"gang ready .*adopted_pages=(\d+) .*incarnation={incarnation} "
    while (found := re.search(pattern, re.sub(r"\x1b\[\d+m", "", server.said))) is None:
        before = server.said
        server.wait_said_anew("\n")
        server.said = before + server.said
    return int(found[1])


def test_what_is_forgotten_does_not_come_back(tmp_path: Path) -> None:
    with serving(tmp_path / "r", "--vault", "--log-level", "info", "--answer-cache", "exact") as server:
        assert server.complete(PROMPT) == server.complete(PROMPT)
        assert server.kill("scheduler/0")
        assert adopted(server, 2) == N_PAGES, "the pages outlive their scheduler"
        where = ("--run-dir", str(server.run_dir))
        none = call("cache", "reset", "--prompt", "another", *where)
        assert (none.stdout, none.returncode) == ("0 pages and 0 answers are forgotten\n", ExitCode.DONE)
        some = call("cache", "reset", "--prompt", PROMPT[:20], "--model", "hash-chain", *where)
        assert (some.stdout, some.returncode) == (f"{N_PAGES} pages and 1 answers are forgotten\n", ExitCode.DONE)
        assert server.kill("scheduler/0")
        assert adopted(server, 3) == 0
        wrong = call("cache", "reset", "--caller", "me", *where)
        assert wrong.returncode == ExitCode.UNUSABLE
        assert "caller: expected none" in wrong.stderr
    assert call("cache", "reset", "--run-dir", str(tmp_path / "none")).returncode == ExitCode.NO_SERVER
