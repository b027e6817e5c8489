"""The parts in which pages of a load come, so that a step can compute its first layers while others are on their way. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpu_workers.pages.copy_runs import CopyRun

_LARGEST, _REST = 8, 3  # a part has at most one in 8 of all layers, and one in 3 of those that are left
_LEAST_BYTES = 32 << 10  # of one page in one part: a copy engine takes longer for many short lines
_CALLS_PER_PAGE = 4  # at most, so that the processor queues copies sooner than the device does them
_LEAST_LOAD_BYTES = 16 << 20  # a third of a millisecond; a smaller load comes whole


class LayerPart(NamedTuple):
    """Layers [first, end), of each page."""

    first: int
    end: int


def layer_parts(n_layers: int, layer_bytes: int) -> list[LayerPart]:
    """The parts that may be waited for, in order: small ones last, so that a step ends soon after the last copy, though its
    layers take nearly as long as their copies. layer_bytes: of one layer of one page."""
    least, first, parts = max(-(-_LEAST_BYTES // layer_bytes), 1), 0, list[LayerPart]()
    while first < n_layers:
        n_left = n_layers - first
        n = max(min(n_layers // _LARGEST, n_left // _REST), least)
        parts.append(LayerPart(first, first + n if n_left >= n + least else n_layers))
        first = parts[-1].end
    return parts


def copied_together(parts: Sequence[LayerPart], runs: Sequence[CopyRun], page_bytes: int) -> list[Sequence[LayerPart]]:
    """Which parts are copied together: one call copies one of these groups for one run of pages. A single group if it is not
    worth more."""
    n_pages = sum(run.n for run in runs)
    n_groups = min(_CALLS_PER_PAGE * n_pages // max(len(runs), 1), len(parts))
    if n_groups < 2 or n_pages * page_bytes < _LEAST_LOAD_BYTES:
        return [parts]
    n_together = -(-len(parts) // n_groups)
    return [parts[at : at + n_together] for at in range(0, len(parts), n_together)]
