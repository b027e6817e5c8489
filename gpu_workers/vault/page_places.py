"""What a rank has for pages that leave its device: places, each for one page. `HostPages` has them on CPU cores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gpu_workers.vault.region import Region
from messages.caches.page_moves import MovePages


@dataclass(frozen=True)
class DoneMoves:
    """What became of the loads of one message."""

    failed: list[int]  # indices of those that failed, see `PagePlaces.load`
    load_s: float  # time that the loads took
    is_early: bool = False  # the places cannot be used yet: nothing was moved
    unstored: list[int] = field(default_factory=list)  # see `PagePlaces.take_unstored`


class QueuedMoves(Protocol):
    """The moves of one message, on their way."""

    def wait(self) -> DoneMoves:
        """Wait until they are done. Called once, on any thread, in the order in which moves were queued. Raises: the device's
        errors."""
        ...


class PagePlaces(Protocol):
    """Called on the step thread: what it does counts as done after all launched plans, and before any later one. Only `take`
    and `put` are called on the thread of the disk, which knows no plans."""

    page_bytes: int  # of what `take` gives and `put` gets: of a page, or of a compressed one

    region: Region  # all that is at the places, with hashes and checksums; the places are empty where it is zero

    def open(self) -> None:
        """The region will not be exchanged any more; moves follow."""

    def queue(self, moves: MovePages) -> QueuedMoves | None:
        """Begin the moves of a message, which run beside plans as if they ran now. None: that is not how these places are used,
        call `store` and `load`. Raises: as `store`."""
        return None

    def store(self, pages: np.ndarray, places: np.ndarray, hashes: np.ndarray) -> None:
        """Copy pages to places, in order. Args: [n] each; hashes: of their contents. Raises: ValueError for an unknown page or
        place."""
        ...

    def load(self, places: np.ndarray, pages: np.ndarray, hashes: np.ndarray) -> list[int]:
        """Copy places to pages. Returns the indices of those that hold no content of the expected hash: their pages are
        undefined, and the places are empty. Args and errors as of `store`."""
        ...

    def clear(self) -> None:
        """Forget all contents."""
        ...

    def return_places(self, places: np.ndarray) -> None:
        """Empty these places and give their memory back to the system; they take memory again when they are filled. places: [n]
        int32, distinct. Places whose number does not follow the load are never asked. Raises: ValueError for an unknown one."""

    def take_unstored(self) -> list[int]:
        """The places that could not be filled since the last call, because there was no memory for them. They are empty."""
        return []

    def take(self, place: int, content_hash: int, page: np.ndarray) -> int | None:
        """Copy the bytes of a place to `page`, for the disk. Returns their checksum, which `put` gets back with them; None if
        the place has another content, is being written or is damaged: then `page` is undefined."""
        ...

    def put(self, place: int, content_hash: int, check: int, page: np.ndarray) -> None:
        """Overwrite a place with a page that the disk has."""
        ...
