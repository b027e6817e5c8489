"""What the host tier has moved."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TierCounts:
    """What was moved since the scheduler began, in pages."""

    stored: int = 0
    loaded: int = 0
    failed: int = 0
    load_s: float = 0.0
    saved_s: float = 0.0  # that computing the loaded pages would have taken, without the time of their loads

    def add_loads(self, n_pages: int, took_s: float, prompt_s: float) -> None:
        """Pages have come. prompt_s: that computing them is expected to take; 0.0: not known."""
        self.loaded += n_pages
        self.load_s += took_s
        self.saved_s += prompt_s - took_s if prompt_s else 0.0
