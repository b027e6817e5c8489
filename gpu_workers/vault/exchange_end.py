"""A rank's end of the exchange of pages with other replicas: `ExchangePlaces` on CPU cores, `QueuedExchange` on GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu_workers.vault.region import Region
from messages.caches.exchange import ExchangePages


@dataclass(frozen=True)
class DoneExchange:
    """What became of the moves of one message."""

    failed: list[int]  # indices of loads whose place had another content, or damaged bytes; their pages are undefined
    load_s: float = 0.0  # time that the loads took
    store_s: float = 0.0  # time that the stores took


class QueuedExchange(Protocol):
    """The moves of one message, on their way."""

    def wait(self) -> DoneExchange:
        """Wait until they are done. Called once, on any thread, in the order in which moves were queued. Raises: the device's
        errors."""
        ...


class MappedPlaces(Protocol):
    """The mapped places of a rank of another replica."""

    @property
    def number(self) -> int:
        """Of that memory."""
        ...

    def close(self) -> None:
        """Nothing is loaded from there any more. Called when all moves that were queued are done."""
        ...


class ExchangeEnd(Protocol):
    """Called on the step thread: what it does counts as done after all launched plans, and before any later one."""

    region: Region  # the own places, which other replicas read

    def open(self) -> None:
        """The region will not be exchanged any more; moves follow."""

    def clear(self) -> None:
        """Forget all contents."""
        ...

    def map(self, descriptor: int, number: int) -> MappedPlaces:
        """The places behind a descriptor, which may be closed afterwards. number: of that memory. Raises: OSError; ValueError
        when that is not memory of places for pages like these."""
        ...

    def move(self, moves: ExchangePages, lender: MappedPlaces | None) -> DoneExchange | QueuedExchange:
        """Do the moves of a message, or queue them. lender: what `map` has returned for the places that it loads from; None:
        loads fail. Raises: ValueError for an unknown page, or an own place that is unknown."""
        ...
