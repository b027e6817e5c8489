"""Run by every Python process that has this directory in PYTHONPATH: it freezes when a file with its process id appears."""

from __future__ import annotations

import ctypes
import os
import threading
import time

_LOOK_EVERY_S, _FOR_EVER_US = 0.01, 600_000_000


def _watch() -> None:
    hold = ctypes.PyDLL(None).usleep  # PyDLL: the call keeps the interpreter's lock
    while not os.path.exists(os.path.join(os.environ["TARDIGRADE_TEST_FREEZE"], str(os.getpid()))):
        time.sleep(_LOOK_EVERY_S)
    hold(_FOR_EVER_US)


def _start() -> None:
    threading.Thread(target=_watch, daemon=True).start()


_start()
os.register_at_fork(after_in_child=_start)
