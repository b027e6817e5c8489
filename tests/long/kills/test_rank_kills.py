"""Up to ten thousand kills of a rank with its memory in a vault: what the next one finds there is whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.long.kills.killed_ranks import N_PAGES, N_PLACES
from tests.support.custody.descriptor_store import StoreProcess
from tests.support.depth import DEPTH

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
N_KILLS = 2000 * DEPTH


def test_thousands_of_kills_leave_whole_pages_and_places(tmp_path: Path) -> None:
    vault = StoreProcess(tmp_path / "vault-0")
    try:
        command = [sys.executable, "-m", "tests.long.kills.killed_ranks", str(vault.path), str(N_KILLS), "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    finally:
        vault.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    n_kills, n_checked, spent_s = (float(word) for word in done.stdout.split())
    print(f"{n_kills:.0f} kills, {n_checked:.0f} pages and places checked, {spent_s} s of processor time")
    assert n_kills == N_KILLS
    assert n_checked >= (N_KILLS - 1) * (N_PAGES - 1 + N_PLACES - 2), "a kill costs one page and one place at most"
