"""Pages of any format, compressed to pages of small integers (`small_pages`), and expanded again.

The vectors of a page are read as attention would read them, in float32, and written as a page of `--kv-dtype int4` has them.
All layers are converted at once: to a format, the layers of one page are as many pages of one layer.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import INT4, format_of
from gpu_workers.layers.page_vectors import PageFormat
from gpu_workers.layers.small_integers import quantise_again
from gpu_workers.layers.small_pages import SmallFormat
from gpu_workers.layers.vector_bytes import check_small_places
from gpu_workers.vault.place_format import PlaceFormat
from messages.steps import PAGE_TOKENS

_SMALL = SmallFormat(quantise_again)  # a page may be compressed, expanded and compressed many times


class Int4Places(PlaceFormat):
    """The format of places for pages of this shape."""

    def __init__(self, shape: KvShape) -> None:
        """Raises: ConfigError when the heads cannot be small integers."""
        check_small_places(shape.head_dim)
        self._n_layers, self._n_heads, self._width = shape.n_layers, shape.n_kv_heads, shape.head_dim
        self._wide = dataclasses.replace(shape, n_layers=1)
        self._small = dataclasses.replace(self._wide, dtype=INT4)
        self.page_bytes, self.place_bytes = (each.bytes_per_page * shape.n_layers for each in (self._wide, self._small))
        self._slots = torch.arange(shape.n_layers * PAGE_TOKENS)
        vectors = torch.arange(shape.n_layers * PAGE_TOKENS * shape.n_kv_heads)
        self._layers = vectors // (PAGE_TOKENS * shape.n_kv_heads)  # of each vector
        self._places = vectors % (PAGE_TOKENS * shape.n_kv_heads)

    def compress(self, page: np.ndarray, place: np.ndarray) -> None:
        self._convert(page, self._wide, place, self._small, _SMALL)

    def expand(self, place: np.ndarray, page: np.ndarray) -> None:
        self._convert(place, self._small, page, self._wide, format_of(self._wide.dtype))

    def _convert(
        self, source: np.ndarray, read_shape: KvShape, target: np.ndarray, written_shape: KvShape, written_format: PageFormat
    ) -> None:
        read, written = self._layers_of(source, read_shape), self._layers_of(target, written_shape)
        is_plain = read_shape.vector_entries == (self._width, self._width)
        dtype = read_shape.dtype if is_plain else torch.float32
        both = format_of(read_shape.dtype).gather(read.keys[0], read.values[0], self._layers, self._places, dtype)
        keys, values = (vectors.view(-1, self._n_heads, self._width) for vectors in both)
        written_format.store(written.keys[0], written.values[0], self._slots, keys, values)

    def _layers_of(self, memory: np.ndarray, shape: KvShape) -> KvPages:
        """The layers of one page as pages of one layer."""
        storage = torch.from_numpy(memory).view(shape.dtype).view(self._n_layers, *shape.page_sizes)
        return KvPages.over(shape, storage)
