"""Which callers have too much of their work at one replica. Pure.

A replica shares its own slots among callers. So a caller whose sequences are mostly at one of several replicas gets less than
its share, however much it has there. The choice of a replica keeps the sequences of a caller even as they come. What deaths,
drains and answers of different lengths have made uneven is found here.
"""

from __future__ import annotations

from collections.abc import Mapping

_FACTOR = 1.25  # a caller with so many times the mean of all replicas has too much at one


class CallerSpread:
    """The callers that had too much at a replica when it was last looked at, by the name of its scheduler."""

    def __init__(self) -> None:
        self._before: set[tuple[str, bytes]] = set()

    def forget(self) -> None:
        """Nobody waits, so nothing is too much."""
        self._before.clear()

    def tokens_to_move(self, tokens_by_name: Mapping[str, Mapping[bytes, int]]) -> dict[str, dict[bytes, float]]:
        """How many tokens of which callers should leave which replicas: what is above the mean, where it was too much at the
        last look too.

        Args: tokens_by_name: of the open attempts of each caller at each replica that takes work."""
        seen, found = set[tuple[str, bytes]](), dict[str, dict[bytes, float]]()
        for caller in {caller for tokens in tokens_by_name.values() for caller in tokens}:
            mean = sum(tokens.get(caller, 0) for tokens in tokens_by_name.values()) / len(tokens_by_name)
            for name, tokens in tokens_by_name.items():
                if (n_tokens := tokens.get(caller, 0)) > _FACTOR * mean:
                    seen.add((name, caller))
                    if (name, caller) in self._before:
                        found.setdefault(name, {})[caller] = n_tokens - mean
        self._before = seen
        return found
