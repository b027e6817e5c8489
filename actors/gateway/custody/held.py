"""What the custodian holds by a key."""

from __future__ import annotations

from typing import Protocol


class Held(Protocol):
    """One descriptor that the custodian holds by its key, and what is noted of it."""

    key: str
    fd: int

    @property
    def meta(self) -> bytes:
        """What the next incarnation gets with the descriptor."""
        ...
