"""A slow machine looks less deep in `make test-long`, but never as little as in `make test`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ops.test_depth import FULL_DEPTH, LEAST_DEPTH, depth_of


@pytest.mark.parametrize(("took_s", "depth"), [(0.02, 5), (0.045, 5), (0.065, 3), (0.1, 2), (3.0, 2)])
def test_the_depth_falls_with_the_speed(took_s: float, depth: int) -> None:
    assert depth_of(took_s) == depth


def test_the_command_prints_a_depth() -> None:
    done = subprocess.run([sys.executable, "-m", "ops.test_depth"], capture_output=True, text=True, timeout=60, check=True)
    assert LEAST_DEPTH <= int(done.stdout) <= FULL_DEPTH
