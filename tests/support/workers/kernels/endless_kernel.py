"""A kernel that never ends, which a test plants in the decode steps of one rank on a CUDA device.

The switch is a file, read before each decode step: while it is there, a kernel that spins for days is queued before the step.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_PLANTED = """
from pathlib import Path

from gpu_workers.process.worker import Worker

_switches = Path({folder!r})
_init = Worker.__init__

def init(self, spawn_spec, *more, **fields):
    import torch
    from gpu_workers.graphs.decode_graphs import DecodeGraphs

    switch, run = _switches / spawn_spec.name.replace("/", "-"), DecodeGraphs.run

    def run_or_hang(self, *arguments):
        if switch.exists():
            torch.cuda._sleep(1 << 60)
        return run(self, *arguments)

    DecodeGraphs.run = run_or_hang
    _init(self, spawn_spec, *more, **fields)

Worker.__init__ = init
"""


class EndlessKernel:
    """The switches of all ranks. `plant` must be called before the server starts. `folder`: of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the ranks that start from now on read the switches."""
        (self._folder / "sitecustomize.py").write_text(_PLANTED.format(folder=str(self._folder)))
        root, known = Path(__file__).parents[4], os.environ.get("PYTHONPATH", "")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(self._folder), str(root), known]))

    def begin(self, worker: str) -> None:
        """The next decode step of this rank does not end, nor any later one."""
        self._switch(worker).touch()

    def stop(self, worker: str) -> None:
        """Its next incarnation computes again."""
        self._switch(worker).unlink()

    def _switch(self, worker: str) -> Path:
        return self._folder / worker.replace("/", "-")
