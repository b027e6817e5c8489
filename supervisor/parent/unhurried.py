"""Work that has no hurry, such as imports in advance, in a process that may be scheduled in real time.

Under a real-time policy (SCHED_RR, SCHED_FIFO) a process that imports keeps its core for a slice of 100 ms or longer, and
those that serve wait. Only a thread can give up that place for a while: a process that has left such a policy may not return.

Only the standard library is imported here, because the parent imports this file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress


def run_unhurried(work: Callable[[], None]) -> None:
    """Do this work in a thread of SCHED_BATCH, and wait for its end. Where no thread can be started it is done here.

    Raises: what `work` raises.
    """
    raised = list[BaseException]()

    def run() -> None:
        with suppress(OSError):  # a sandbox may not let it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="unhurried")
    try:
        thread.start()
    except RuntimeError:
        return work()
    thread.join()
    if raised:
        raise raised[0]
