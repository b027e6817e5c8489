"""How long it takes to bring a page back, as measured by the loads before. Pure."""

from __future__ import annotations

_DOWN, _UP = 0.5, 0.25  # of the error that is corrected; up is slower, because a pause of the machine lengthens loads
_DOUBT = 0.98  # by which the expected time falls with each load that was not worth it: it may have been one slow copy


class PageTime:
    """`expected_s`: for each page; None: not measured."""

    def __init__(self) -> None:
        self.expected_s: float | None = None

    def learn(self, page_s: float) -> None:
        """A load took so long for each page."""
        if self.expected_s is None:
            self.expected_s = page_s
        else:
            self.expected_s += (page_s - self.expected_s) * (_UP if page_s > self.expected_s else _DOWN)

    def doubt(self) -> None:
        """A load was not begun, because it is expected to take too long."""
        if self.expected_s is not None:
            self.expected_s *= _DOUBT
