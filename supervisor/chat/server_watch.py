"""Notices that a server on this machine is gone while an answer is awaited, so that nobody waits for a deadline.

A server whose processes were all killed says nothing more, and its sockets refuse connections. One whose supervisor and parent
have died may still answer for a while: its gateways accept connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from messages.errors import Unavailable

_LOOK_S, _LOOKS = 1.0, 4  # how often it looks for the server, and after how many looks without one it is gone
_IPC = "ipc://"
ENDED = "the server has ended: none of its processes is left"

Watch = Callable[[], bool]  # True while the server is there


def watch_of(endpoint: str) -> Watch | None:
    """How to look for the server of a ZeroMQ endpoint; None for one that may be on another machine."""
    if not endpoint.startswith(_IPC):
        return None
    run_dir = Path(endpoint.removeprefix(_IPC)).parent
    return lambda: _is_there(run_dir)


def _is_there(run_dir: Path) -> bool:
    from messages.run_dir import ZEROMQ_FILE
    from supervisor.operator.calls import accepts, is_alive

    return is_alive(run_dir) or any(accepts(path) for path in run_dir.glob(ZEROMQ_FILE.format(index="*")))


class ServerEnding:
    """Whether a server has ended. `look`: None is taken for a server that is always there."""

    def __init__(self, look: Watch | None = None, every_s: float = _LOOK_S) -> None:
        self._look, self._every_s = look, every_s
        self.has_ended = False

    @contextmanager
    def watched(self, on_end: Callable[[], None]) -> Iterator[None]:
        """Watch the server meanwhile. `on_end` is called on a thread of its own when the server is gone; it closes the client.

        Raises: Unavailable that says so, in the place of the one that calls of a closed client end with."""
        if self._look is None:
            yield
            return
        is_over = threading.Event()
        thread = threading.Thread(target=self._run, args=(self._look, is_over, on_end), daemon=True)
        thread.start()
        try:
            yield
        except Unavailable:
            if self.has_ended:
                raise Unavailable(ENDED) from None
            raise
        finally:
            is_over.set()

    def _run(self, look: Watch, is_over: threading.Event, on_end: Callable[[], None]) -> None:
        n_without = 0
        while n_without < _LOOKS:
            if is_over.wait(self._every_s):
                return
            n_without = 0 if look() else n_without + 1
        self.has_ended = True
        on_end()
