"""NVML's Python module over the stand-in library, in this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.support.nvml.stub_library import StubNvml


@dataclass(frozen=True)
class LoadedStub:
    """`nvml`: the module; `stub`: what its devices say."""

    nvml: Any
    stub: StubNvml


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedStub:
    stub = StubNvml(tmp_path)
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(stub.library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return LoadedStub(pynvml, stub)
