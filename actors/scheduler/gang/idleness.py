"""Notices that a plan, a Reset or an answer to one of them is lost: a gang is idle, while its scheduler waits for it. Pure.

Links lose nothing between living processes, and the supervisor kills a rank whose step does not end. This notices what neither
does: a message that the other side has dropped, for example because it could not be decoded.
"""

from __future__ import annotations

_REPORTS, _LOST_S = 5, 2.0  # reports of idleness that may wait in an inbox prove nothing


class Idleness:
    """All times are the monotonic clock."""

    def __init__(self) -> None:
        self._awaited: tuple[int, int] | None = None
        self._n_reports = 0
        self._since_s = 0.0

    def reported(self, awaited: tuple[int, int] | None, now_s: float) -> bool:
        """The rank that answers for the gang is idle. `awaited`: what its scheduler waits for, None: nothing. Returns True if
        that will never come: it has been the same for several reports and for two seconds.
        """
        if awaited is None or awaited != self._awaited:
            self._awaited, self._n_reports, self._since_s = awaited, 0, now_s
        self._n_reports += 1
        return awaited is not None and self._n_reports >= _REPORTS and now_s - self._since_s >= _LOST_S
