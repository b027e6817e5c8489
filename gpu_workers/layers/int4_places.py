"""Pages of any format, compressed to pages of small integers (`small_pages`), and expanded again.

The vectors of a page are read as attention would read them, in float32, and written as a page of `--kv-dtype int4` has them.
To a format, the layers of one page are as many pages of one layer. A few of them are converted at once: so few that torch
leaves them to the calling thread. On a machine with a load of 16 a page took 2 s where each operation waited for other threads,
and 0.06 s where none did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import INT4, format_of
from gpu_workers.layers.small_integers import quantise_again
from gpu_workers.layers.small_pages import SmallFormat
from gpu_workers.layers.vector_bytes import check_small_places
from gpu_workers.vault.place_format import PlaceFormat
from messages.steps import PAGE_TOKENS

_NUMBERS_AT_ONCE = 21_845  # of keys, and of values; values have three planes of half as many bits, and torch spreads 32,769
_SMALL = SmallFormat(quantise_again)  # a page may be compressed, expanded and compressed many times


class Int4Places(PlaceFormat):
    """The format of places for pages of this shape."""

    def __init__(self, shape: KvShape) -> None:
        """Raises: ConfigError when the heads cannot be small integers."""
        check_small_places(shape.head_dim)
        self._n_layers = shape.n_layers
        self._wide = dataclasses.replace(shape, n_layers=1)
        self._small = dataclasses.replace(self._wide, dtype=INT4)
        self.page_bytes, self.place_bytes = (each.bytes_per_page * shape.n_layers for each in (self._wide, self._small))
        self._layers_at_once = max(_NUMBERS_AT_ONCE // (PAGE_TOKENS * shape.n_kv_heads * shape.head_dim), 1)

    def compress(self, page: np.ndarray, place: np.ndarray) -> None:
        for wide, small in zip(self._layers_of(page, self._wide), self._layers_of(place, self._small), strict=True):
            vectors = format_of(self._wide.dtype).read_pages(wide.keys[0], wide.values[0])
            _SMALL.write_pages(small.keys[0], small.values[0], *vectors)

    def expand(self, place: np.ndarray, page: np.ndarray) -> None:
        for small, wide in zip(self._layers_of(place, self._small), self._layers_of(page, self._wide), strict=True):
            vectors = _SMALL.read_pages(small.keys[0], small.values[0])
            format_of(self._wide.dtype).write_pages(wide.keys[0], wide.values[0], *vectors)

    def _layers_of(self, memory: np.ndarray, shape: KvShape) -> Iterator[KvPages]:
        """The layers of one page as pages of one layer, some at once."""
        storage = torch.from_numpy(memory).view(shape.dtype).view(self._n_layers, *shape.page_sizes)
        return (KvPages.over(shape, some) for some in storage.split(self._layers_at_once))
