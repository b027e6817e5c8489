"""What a command does when nobody reads its output any more, as in `supervisor status | head -1`."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_STDOUT, _STDERR = 1, 2


@contextmanager
def ended_by_closed_output() -> Iterator[None]:
    """End this process by SIGPIPE, as other programs are, where the block fails because the reader of its output is gone.

    Python ignores the signal, and click would exit with 1, which means a bug here. `with` blocks inside have ended by then, so
    a private server has too. Raises: BrokenPipeError where another pipe or socket is broken.
    """
    try:
        yield
    except BrokenPipeError:
        if not (_is_unread(_STDOUT) or _is_unread(_STDERR)):
            raise
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
        os.kill(os.getpid(), signal.SIGPIPE)


def _is_unread(fd: int) -> bool:
    """Whether `fd` is a pipe or a socket whose other end is closed."""
    poll = select.poll()
    poll.register(fd, 0)  # POLLERR and POLLHUP are always told
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
