"""A device that a test can break while a real server runs: a `sitecustomize` for its processes, and the switches.

`load`: the worker's engine cannot be loaded. `step`: every step of it is an error. `hang`: no step of it ends. `slow`: each
step takes `SLOW_S` more. The switches are files, so they work in incarnations to come too. `hang` is for the embedder too: no
batch of it ends.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SLOW_S = 0.3  # less than a step that counts as hung
_PLANTED = """
import os
import time
from pathlib import Path

from gpu_workers.embedding.embedder import Embedder
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.worker import Worker

_switches = Path({folder!r})
_names = []
_init, _init_engine, _launch = Worker.__init__, HashChainEngine.__init__, HashChainEngine.launch

def _is_broken(what):
    return any((_switches / f"{{what}}-{{name.replace('/', '-')}}").exists() for name in _names)

def init(self, spawn_spec, *more, **fields):
    _names.append(spawn_spec.name)
    _init(self, spawn_spec, *more, **fields)

def init_engine(self, *more, **fields):
    if _is_broken("load"):
        raise RuntimeError("CUDA error: no such device")
    _init_engine(self, *more, **fields)

def launch(self, plan):
    if _is_broken("step"):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    while _is_broken("hang"):
        time.sleep(0.02)
    if _is_broken("slow"):
        time.sleep({slow_s})
    return _launch(self, plan)

_init_embedder = Embedder.__init__

def init_embedder(self, spawn_spec, *more, **fields):
    _names.append(spawn_spec.name)
    _init_embedder(self, spawn_spec, *more, **fields)
    load = self._load

    def load_embedder(*more):
        model = load(*more)
        embed = model.embed

        def embed_or_hang(texts):
            while _is_broken("hang"):
                time.sleep(0.02)
            return embed(texts)

        model.embed = embed_or_hang
        return model

    self._load = load_embedder

Embedder.__init__ = init_embedder
Worker.__init__, HashChainEngine.__init__, HashChainEngine.launch = init, init_engine, launch
"""


class FaultyDevices:
    """The switches of the devices of workers and of the embedder. `plant` must be called before the server starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the processes that start from now on read the switches."""
        (self._folder / "sitecustomize.py").write_text(_PLANTED.format(folder=str(self._folder), slow_s=SLOW_S))
        root = Path(__file__).parents[3]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(self._folder), str(root)]))

    def break_it(self, worker: str, what: str) -> None:
        """From now on the device of this worker fails at `what`: "load", "step", "hang" or "slow"."""
        self._switch(worker, what).touch()

    def repair(self, worker: str, what: str) -> None:
        """Undo `break_it`."""
        self._switch(worker, what).unlink()

    def _switch(self, worker: str, what: str) -> Path:
        return self._folder / f"{what}-{worker.replace('/', '-')}"
