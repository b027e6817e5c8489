"""A kernel is compiled once on a machine: later processes run its code from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_workers.cpu.kernels import machine_code
from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.cpu.kernels.machine_code import compile_kernel
from gpu_workers.cpu.kernels.vector_code import FIRST_WORD, I64, VectorCode

_MACHINE = this_machine()
pytestmark = pytest.mark.skipif(_MACHINE is None, reason="this processor has no kernels")


def _write_add(code: VectorCode, number: int) -> None:
    with code.each_unit(code.argument(FIRST_WORD)) as unit:
        code.b.atomic_rmw("add", code.at(code.pointer(FIRST_WORD + 1), unit, I64), I64(number), "monotonic")


def _added(number: int) -> list[int]:
    assert _MACHINE is not None
    found = np.zeros(5, np.int64)
    compile_kernel(lambda code: _write_add(code, number), _MACHINE)((5, found.ctypes.data), 2)
    return found.tolist()


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What LLVM was given to compile."""
    found, really = list[str](), machine_code._compile

    def count(assembly: str, target: Any) -> bytes:
        found.append(assembly)
        return really(assembly, target)

    monkeypatch.setenv("TARDIGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_code, "_compile", count)
    return found


def test_the_second_time_nothing_is_compiled(compiled: list[str]) -> None:
    assert _added(3) == _added(3) == [3] * 5
    assert len(compiled) == 1
    assert _added(4) == [4] * 5
    assert len(compiled) == 2


def test_a_damaged_file_is_compiled_anew(compiled: list[str], tmp_path: Path) -> None:
    assert _added(3) == [3] * 5
    (path,) = (tmp_path / "kernels").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert _added(3) == [3] * 5
    path.write_bytes(b"")
    assert _added(3) == [3] * 5
    assert len(compiled) == 3


def test_without_a_folder_it_is_compiled_each_time(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TARDIGRADE_CACHE", str(tmp_path / "file"))
    assert _added(3) == _added(3) == [3] * 5
    assert len(compiled) == 2


def test_a_user_without_a_home_folder_has_kernels(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "TARDIGRADE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # the machine knows no such user
    assert _added(3) == _added(3) == [3] * 5
    assert len(compiled) == 2
