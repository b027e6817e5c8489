"""Standard input, output and error of a server whose starter has closed some of them, as `supervisor start >&- 2>&-` does.

Only the standard library is imported here, because this process becomes the supervisor's parent.
"""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Open /dev/null in place of each of the descriptors 0, 1 and 2 that is closed. Call it before a file is opened that stays
    open: it would get one of these numbers, and what is written to standard error would go there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  it stays open
