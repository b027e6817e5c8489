"""The memory of processes over many requests: how much each of them grows for a thousand requests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from ops.bench.leaks.held_resources import Growth, holding_of, slope

_JUDGED_REQUESTS = 500_000  # before, what has a bound fills up: a gateway remembers 65,536 ids of requests that it dropped


class MemorySamples:
    """Samples of these processes, by name and id."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._samples: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}

    def take(self, n_requests: int) -> None:
        """A sample after so many requests."""
        for name, pid in self._pids.items():
            with suppress(OSError):  # it has ended
                self._samples[name].append((n_requests / 1000, holding_of(pid).memory_bytes))

    def slopes(self) -> dict[str, float]:
        """Bytes for each thousand requests, by process."""
        return {name: slope(samples) for name, samples in self._samples.items()}

    def growths(self, most_bytes: float) -> list[Growth]:
        """The processes that grow by more than `most_bytes` for each thousand requests."""
        judged = {name: samples for name, samples in self._samples.items() if _length(samples) >= _JUDGED_REQUESTS / 1000}
        slopes = {name: round(slope(samples)) for name, samples in judged.items()}
        what = "bytes of memory for each thousand requests"
        return [Growth(name, what, 0, bytes_) for name, bytes_ in slopes.items() if bytes_ > most_bytes]


def _length(samples: list[tuple[float, float]]) -> float:
    return samples[-1][0] - samples[0][0] if samples else 0.0
