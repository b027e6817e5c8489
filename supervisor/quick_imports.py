"""Imports structlog and numpy without what a server never uses of them. To be imported before them.

structlog imports rich, which only its coloured tracebacks need; those of a server's log are plain (`logs.py`). numpy starts a
thread for each core, which spins before it sleeps; the processes of a server multiply no matrices with numpy. Of the processor
time that an actor's process takes until its actor runs, each is more than a tenth.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

_RICH = "rich"
_THREADS = "OPENBLAS_NUM_THREADS"


def _import_structlog() -> None:
    """Import structlog as if rich were not installed. Later imports of rich find it."""
    if _RICH in sys.modules:
        return
    modules: dict[str, ModuleType | None] = sys.modules  # pyright: ignore[reportAssignmentType] None: not to be found
    modules[_RICH] = None
    try:
        importlib.import_module("structlog")
    finally:
        del modules[_RICH]


def _import_numpy() -> None:
    """Import numpy with one thread for products of matrices. The environment is afterwards what it was."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before


_import_structlog()
_import_numpy()
