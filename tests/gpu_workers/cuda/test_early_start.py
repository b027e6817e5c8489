"""What is made beside the imports of a start: the context of a device, and Triton's digest. Fakes stand for both libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_workers.cuda import early_start
from gpu_workers.vault.cuda_library import CudaError
from tests.support.fresh_interpreter import run_script

_DEADLINE_S = 30.0


class FakeLibrary:
    """Notes the calls of a driver; `broken` is the one that fails."""

    def __init__(self, calls: list[str], broken: str = "") -> None:
        self._calls, self._broken = calls, broken

    def call(self, name: str, *arguments: object) -> None:
        """One call of the driver."""
        self._calls.append(name)
        if name == self._broken:
            raise CudaError(f"{name}: no device (100)")


@pytest.mark.parametrize(
    ("broken", "called"),
    [("", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]), ("cuDeviceGet", ["cuInit", "cuDeviceGet"])],
)
def test_a_context_is_made_and_a_failure_is_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, broken: str, called: list[str]
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(early_start, "CudaLibrary", lambda _: FakeLibrary(calls, broken))
    thread = early_start.begin_context(0)
    thread.join(_DEADLINE_S)
    assert calls == called


def _script(folder: Path) -> str:
    return (
        f"import sys; sys.path.insert(0, {str(folder)!r}); from gpu_workers.cuda.early_start import begin_digest;"
        f"begin_digest().join({_DEADLINE_S}); import triton; print(triton.by, 'torch' in sys.modules)"
    )


def test_the_digest_is_made_by_a_thread_without_torch(tmp_path: Path) -> None:
    runtime = tmp_path / "triton" / "runtime"
    runtime.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").write_text("by = None\n")
    (runtime / "__init__.py").write_text("")
    (runtime / "cache.py").write_text(
        "import threading, triton\n\n\ndef triton_key():\n    triton.by = threading.current_thread().name\n"
    )
    assert run_script(_script(tmp_path)) == "triton digest False"


def test_another_release_of_triton_makes_it_later(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("by = None\n")
    assert run_script(_script(tmp_path)) == "None False"
