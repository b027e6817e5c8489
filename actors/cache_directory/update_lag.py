"""How far the directory is behind the schedulers: the time from the sending of an update until questions see it."""

from __future__ import annotations

from messages.metrics import Histogram

_BOUNDS_S = (0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0)
_LONGEST_S = 600.0  # no update is under way for longer: a larger difference is that of the clocks of two hosts


class UpdateLag:
    """Lags by the monotonic clock, which all processes of a host share. Those of other hosts are left out."""

    def __init__(self) -> None:
        what = "Seconds from the sending of an update by a scheduler until questions see it, on one host."
        self.seconds = Histogram("tardigrade_directory_lag_seconds", what, _BOUNDS_S)

    def applied(self, sent_s: float, now_s: float) -> None:
        """An update can be seen from now on. sent_s: when it was sent; 0: its scheduler did not say, as the last release."""
        if sent_s and 0.0 <= now_s - sent_s <= _LONGEST_S:
            self.seconds.observe(now_s - sent_s)
