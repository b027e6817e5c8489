"""What the host tier of a GPU needs of the device: copies in a queue of their own, beside the plans.

All copies of a rank run one after the other, in the order in which they were queued. They begin after all plans that have been
launched before. A plan that is launched later waits only if it is told to, and it waits on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class PlaceCopies:
    """Pages and places, one page each."""

    pages: np.ndarray  # [n] numbers of pages that exist
    memory: np.ndarray  # [n_places, bytes of a place] uint8 on the host, pinned, each place contiguous
    places: np.ndarray  # [n] rows of `memory`, distinct
    span: int = 1  # so many places from each multiple of it on lie together, and one copy may have them
    is_compressed: bool = False  # places hold pages as the stream compresses them


@dataclass(frozen=True)
class PlaceCompressions:
    """Pages that lie as they are in frames on the host, and units there which get them compressed. Both may be one memory."""

    frames: np.ndarray  # [n_frames, bytes of a page] uint8, pinned, each contiguous
    from_frames: np.ndarray  # [n] rows of `frames`, distinct
    units: np.ndarray  # [n_units, bytes of a place] uint8, pinned, each contiguous
    to_units: np.ndarray  # [n] rows of `units`, distinct; each is its own frame's first, or in the frame of none of these pages


@dataclass(frozen=True)
class CopiedPages:
    """What copies have done."""

    stored_sums: np.ndarray  # [n] uint64: checksums of the bytes that were copied to the host, taken on the device
    loaded_sums: np.ndarray  # [m] uint64: checksums of the bytes that came from the host, taken on the device afterwards
    load_s: float  # time of the copies from the host and of what expands them, without what they waited for
    store_s: float = 0.0  # the same of the copies to the host


class Copies(Protocol):
    """The copies of one call."""

    comes_by_layers: bool = False  # a plan may begin before they end, if each layer waits for its part (`LayerGates`)

    def wait(self) -> CopiedPages:
        """Wait until all of them are done. Called once, on any thread. Raises: the device's errors."""
        ...


class CopyStream(Protocol):
    """Called on the step thread. Nothing here waits for the device."""

    def queue(self, stored: PlaceCopies, loaded: PlaceCopies) -> Copies:
        """Queue copies of pages to places, and then of places to pages."""
        ...

    def compress(self, places: PlaceCompressions) -> Copies:
        """Queue compressions. `loaded_sums` of the result are checksums of what was in the frames, `stored_sums` of what was
        written to the units."""
        ...

    def go_around(self, is_busy: bool) -> None:
        """Called before a plan is launched. is_busy: copies are on their way, which other copies of the plan should not wait
        for."""

    def hold_plans(self, copies: Copies) -> None:
        """Plans that are launched from now on begin after these copies, and so after all that were queued before them."""
        ...
