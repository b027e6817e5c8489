"""Integer and float arrays inside messages: their types, their limits, and how they are encoded.

A message field annotated `Int32s` holds a one-dimensional numpy array. On the wire the field is a descriptor
`[dtype, offset_bytes, count]` that points into one raw frame after the message, so that a step with a hundred thousand
tokens costs one copy and no Python object per token.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec
import numpy as np

MAX_ARRAY_ITEMS = 4_194_304  # 16 MiB of int32: above any plan of a 128k-token prompt batch
_ALIGN_BYTES = 8
_FEW_ITEMS = 256


class ArrayOf(msgspec.Struct, frozen=True):
    """The element type of an array field, as written in its annotation."""

    dtype: str


Int32s = Annotated[np.ndarray, ArrayOf("<i4")]
Int64s = Annotated[np.ndarray, ArrayOf("<i8")]
UInt64s = Annotated[np.ndarray, ArrayOf("<u8")]
Float32s = Annotated[np.ndarray, ArrayOf("<f4")]
_INT32, _INT64, _UINT64, _FLOAT32 = (np.dtype(name) for name in ("<i4", "<i8", "<u8", "<f4"))
_DTYPES = {dtype.str: dtype for dtype in (_INT32, _INT64, _UINT64, _FLOAT32)}
_EMPTY = {dtype: np.empty(0, dtype) for dtype in _DTYPES.values()}
for _empty in _EMPTY.values():
    _empty.setflags(write=False)
EMPTY_I32, EMPTY_I64, EMPTY_U64, EMPTY_F32 = _EMPTY.values()


def _flat(values: Iterable[float] | np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(values, dtype)
    items = values if isinstance(values, list) else list(values)
    return np.array(items, dtype) if items else _EMPTY[dtype]


def int32s(values: Iterable[int] | np.ndarray = ()) -> np.ndarray:
    """One-dimensional int32 array, shape [n]; read-only where n is 0."""
    return _flat(values, _INT32)


def int64s(values: Iterable[int] | np.ndarray = ()) -> np.ndarray:
    """One-dimensional int64 array, shape [n]; read-only where n is 0."""
    return _flat(values, _INT64)


def uint64s(values: Iterable[int] | np.ndarray = ()) -> np.ndarray:
    """One-dimensional uint64 array, shape [n]: page hashes."""
    return _flat(values, _UINT64)


def float32s(values: Iterable[float] | np.ndarray = ()) -> np.ndarray:
    """One-dimensional float32 array, shape [n]; read-only where n is 0."""
    return _flat(values, _FLOAT32)


def total(array: np.ndarray) -> int:
    """The sum of integers. `array.sum()` takes 80 us when its code is not in the processor's cache, as in each step."""
    return sum(array.tolist()) if len(array) <= _FEW_ITEMS else int(array.sum())


_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@cache
def array_fields(kind: type) -> tuple[tuple[str, np.dtype[Any], np.ndarray], ...]:
    """(field name, dtype, the empty array as decoded) of every array field of a message class. Its annotation is one name: to
    evaluate the others as well would take most of the time of a codec."""
    found: dict[str, np.dtype[Any]] = {}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__])
        for field, annotation in vars(base).get("__annotations__", {}).items():
            hint = names.get(annotation) if isinstance(annotation, str) else annotation
            found.pop(field, None)  # of a base that declares it otherwise
            for mark in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
                if isinstance(mark, ArrayOf):
                    found[field] = _DTYPES[mark.dtype]
    return tuple((field, dtype, _EMPTY[dtype]) for field, dtype in found.items())


def check_arrays(message: Any) -> None:
    """Refuse an array of the wrong element type, rank or length.

    Raises: ValueError naming the field, what was expected and what came.
    """
    for name, dtype, empty in array_fields(type(message)):
        array = getattr(message, name)
        if array is empty:
            continue
        if array.dtype != dtype or array.ndim != 1:
            raise ValueError(f"{name}: expected a flat array of {dtype.str}, got {array.dtype.str} of rank {array.ndim}")
        if len(array) > MAX_ARRAY_ITEMS:
            raise ValueError(f"{name}: expected at most {MAX_ARRAY_ITEMS} items, got {len(array)}")


class ArrayFrame:
    """Collects the arrays of one message into one frame, each aligned to 8 bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def add(self, array: np.ndarray) -> list[Any]:
        """Append an array; returns the descriptor that stands in the message."""
        name = _NAMES[array.dtype]
        if not len(array):
            return [name, 0, 0]
        padding = -self._size_bytes % _ALIGN_BYTES
        if padding:
            self._parts.append(b"\0" * padding)
        offset = self._size_bytes + padding
        self._parts.append(array.tobytes())
        self._size_bytes = offset + array.nbytes
        return [name, offset, len(array)]

    def take(self) -> bytes:
        """The finished frame; the collector is empty afterwards."""
        frame, self._parts, self._size_bytes = b"".join(self._parts), [], 0
        return frame


def read_array(descriptor: Any, frame: bytes | memoryview) -> np.ndarray:
    """The array that a descriptor points to: a read-only view, no copy.

    Raises: ValueError when the descriptor is malformed or points outside of the frame.
    """
    if type(descriptor) is list and len(descriptor) == 3:
        name, offset, count = descriptor
        dtype = _DTYPES.get(name) if type(name) is str else None
        if dtype is not None and type(offset) is int and type(count) is int:
            if count == 0:
                return _EMPTY[dtype]
            if not 0 <= count <= MAX_ARRAY_ITEMS or offset < 0 or offset + count * dtype.itemsize > len(frame):
                raise ValueError(
                    f"array: expected {count} items at byte {offset} inside a frame of {len(frame)} bytes, got less"
                )
            return np.frombuffer(frame, dtype, count, offset)
    raise ValueError(f"array: expected [dtype, offset_bytes, count], got {str(descriptor)[:80]}")
