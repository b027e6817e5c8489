"""The library of CUDA's driver, as functions that raise."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_int
from typing import Any

from messages.errors import TardigradeError

_LIBRARY = "libcuda.so.1"


class CudaError(TardigradeError, OSError):
    """A call of the driver failed; the text names the call and the driver's reason."""


class CudaLibrary:
    """Calls work on the current context of the calling thread, and let other Python threads run meanwhile. `arguments`: the
    types of the arguments of each function that is to be called."""

    def __init__(self, arguments: Mapping[str, tuple[Any, ...]]) -> None:
        """Load the library. Raises: CudaError when there is none."""
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise CudaError(str(error)) from None
        for name, types in {**arguments, "cuGetErrorString": (c_int, POINTER(c_char_p))}.items():
            getattr(self._library, name).argtypes = types

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Raises: CudaError."""
        self.check(name, getattr(self._library, name)(*arguments))

    def function(self, name: str) -> Callable[..., int]:
        """A function, for many calls. Each returns a status for `check`."""
        return getattr(self._library, name)

    def check(self, name: str, status: int) -> None:
        """Raises: CudaError if this function has not returned 0."""
        if status:
            text = c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            reason = text.value.decode() if text.value else "unknown error"
            raise CudaError(f"{name}: {reason} ({status})")
