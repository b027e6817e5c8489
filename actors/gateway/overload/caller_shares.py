"""Divides a bounded amount, such as the room of a queue, among callers. Pure.

A caller may hold up to `_EAGERNESS` times its weight times what nobody holds (dynamic thresholds, Choudhury and Hahne, 1998). A
caller that is alone so gets four fifths, two of equal weight get four ninths each, and something is free for one more caller.
A caller that holds nothing may take all that is free.
"""

from __future__ import annotations

from dataclasses import dataclass

_EAGERNESS = 4


@dataclass
class _Held:
    """What one caller holds, and its weight as it was told last."""

    n: int
    weight: float


class CallerShares:
    """At most `limit` of something for all callers together. `are_told_apart`: False: they all count as one, without shares."""

    def __init__(self, limit: int, *, are_told_apart: bool) -> None:
        self.limit, self._are_told_apart = limit, are_told_apart
        self.n_held = 0  # by all callers
        self._parts: dict[bytes, _Held] = {}

    @property
    def n_free(self) -> int:
        """What nobody holds."""
        return max(self.limit - self.n_held, 0)

    @property
    def n_callers(self) -> int:
        """Callers that hold something."""
        return len(self._parts)

    def held_by(self, caller: bytes) -> int:
        """What a caller holds."""
        part = self._parts.get(caller)
        return 0 if part is None else part.n

    def room(self, caller: bytes, weight: float) -> int:
        """How much more a caller of this weight may take now."""
        held = self.held_by(caller)
        if not self._are_told_apart or not held:
            return self.n_free
        part = _EAGERNESS * weight
        return max(int((part * self.n_free - held) / (1.0 + part)), 0)  # so that it is not above its part afterwards

    def add(self, caller: bytes, weight: float, n: int) -> None:
        """A caller takes `n`, which may be more than its room: what was accepted before this process began counts too."""
        if not n:
            return
        self.n_held += n
        if (part := self._parts.get(caller)) is None:
            self._parts[caller] = _Held(n, weight)
        else:
            part.n, part.weight = part.n + n, weight

    def release(self, caller: bytes, n: int) -> None:
        """A caller gives `n` back."""
        if not n:
            return
        self.n_held -= n
        part = self._parts[caller]
        part.n -= n
        assert part.n >= 0, "a caller gives back what it has taken"
        if not part.n:
            del self._parts[caller]

    def fair_share(self, caller: bytes) -> int | None:
        """How much of what is held is the due of a caller by its weight, if it holds that or more; None: it holds less."""
        part = self._parts.get(caller)
        if part is None:
            return None
        weights = sum(one.weight for one in self._parts.values())
        return int(self.n_held * part.weight / weights) if part.n * weights >= self.n_held * part.weight else None
