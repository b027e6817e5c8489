"""The reader of the `gguf` package with a quick way through arrays.

The package makes several array views of each element: for the vocabulary and the merges of a small model, five seconds of
processor time. Here an array of texts or numbers is read at once, and `contents_of` returns it as a list.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from gguf import GGUFEndian, GGUFReader, GGUFValueType, ReaderField

_HEAD_BYTES = 12  # of an array: the type of its elements, and how many there are


class QuickGgufReader(GGUFReader):
    """Reads a whole file as `GGUFReader` does. Raises what that raises, also where a text is not UTF-8: UnicodeDecodeError."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[np.ndarray], list[int], list[GGUFValueType]]:
        """The value that begins at this byte: its size in bytes, its parts, which of these are data, and its types."""
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, start = GGUFValueType(self._get(orig_offs, np.uint32)[0]), orig_offs + _HEAD_BYTES
        n = int(self._get(orig_offs + 4, np.uint64)[0])
        if kind == GGUFValueType.STRING:
            texts, end = self._texts(start, n)
            values = np.array(texts, dtype=object)
        elif kind in self.gguf_scalar_to_np:
            dtype = np.dtype(self.gguf_scalar_to_np[kind])
            if (end := start + n * dtype.itemsize) > len(self.data):
                raise IndexError(f"an array of {n} numbers goes on after the end of the file")
            values = self._get(start, dtype, n)
        else:
            return super()._get_field_parts(orig_offs, raw_type)
        return end - orig_offs, [values], [0], [GGUFValueType.ARRAY, kind]

    def _texts(self, at: int, n: int) -> tuple[list[str], int]:
        """`n` texts from this byte on, and the first byte after them."""
        content, texts = self.data.data, list[str]()
        read_length = struct.Struct(">Q" if self.endianess == GGUFEndian.BIG else "<Q").unpack_from
        for _ in range(n):
            if at + 8 > len(content) or (end := at + 8 + read_length(content, at)[0]) > len(content):
                raise IndexError(f"a text at byte {at} goes on after the end of the file")
            texts.append(str(content[at + 8 : end], "utf-8"))
            at = end
        return texts, at


def contents_of(field: ReaderField) -> Any:
    """The value of a field of a `QuickGgufReader`: a text, a number, or a list of these."""
    is_array = field.types[0] == GGUFValueType.ARRAY and GGUFValueType.ARRAY not in field.types[1:]
    return field.parts[-1].tolist() if is_array else field.contents()
