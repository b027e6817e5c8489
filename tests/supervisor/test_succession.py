"""What a supervisor decides when its parent is dead: it hands over, unless it ends the server already."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import cast

import pytest

from supervisor.directories.saved_state import SavedStateFile
from supervisor.operator.tree_commands import TreeCommands
from supervisor.parent.execution import STOP_SIGNALS
from supervisor.parent.link import ParentLink
from supervisor.succession import Succession


class StubCommands:
    def __init__(self, is_stopping: bool) -> None:
        self.is_stopping, self.handed_over = is_stopping, asyncio.Event()

    def hand_over(self) -> None:
        self.handed_over.set()


@pytest.mark.parametrize("is_stopping", [False, True])
async def test_a_supervisor_hands_over_unless_it_ends_the_server(is_stopping: bool, tmp_path: Path) -> None:
    link, saved = ParentLink(), SavedStateFile(tmp_path / "supervisor.json")
    commands = StubCommands(is_stopping)
    Succession(link, cast(TreeCommands, commands), saved)
    try:
        link.on_parent_death()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert (set(STOP_SIGNALS) <= blocked) == (not is_stopping), "the next parent gets them"
        if not is_stopping:
            await asyncio.wait_for(commands.handed_over.wait(), 60.0)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    assert SavedStateFile(tmp_path / "supervisor.json").left.n_parent_deaths == 1
