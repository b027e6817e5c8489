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
