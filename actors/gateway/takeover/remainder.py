"""The rest of a response whose first bytes an earlier incarnation has written. Pure.

The whole response is made again, byte for byte, and its first part is left out.
"""

from __future__ import annotations


class Remainder:
    """Cuts the first `n_written` bytes off a response."""

    def __init__(self, n_written: int) -> None:
        self._n_left = n_written

    @property
    def is_reached(self) -> bool:
        """True if all that the earlier incarnation had written was made again."""
        return self._n_left == 0

    def push(self, data: bytes) -> bytes:
        """The next bytes of the whole response; returns those that the client does not have."""
        n = min(self._n_left, len(data))
        self._n_left -= n
        return data[n:]
