"""The calls of CUDA's driver for virtual memory management, and nothing else.

Memory and addresses are apart: `create` makes physical memory, which lives while anything holds it (a handle, a mapping, an
exported descriptor, also in a process without CUDA); `reserve` takes addresses; `map` joins them. The calls work on the current
context of the calling thread, which torch has made. Source: CUDA driver API, "Virtual Memory Management".
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from typing import Protocol

import structlog

from gpu_workers.vault.cuda_library import CudaError, CudaLibrary

_PINNED = _DEVICE = _POSIX_DESCRIPTOR = 1
_READ, _READ_WRITE = 1, 3


class Driver(Protocol):
    """What a `CudaRegion` needs. Sizes are multiples of `granularity_bytes`. Every call raises CudaError."""

    granularity_bytes: int

    def create(self, n_bytes: int) -> int:
        """New physical memory, with any content. Returns its handle."""
        ...

    def release(self, handle: int) -> None:
        """Release the handle; mappings stay."""
        ...

    def export(self, handle: int) -> int:
        """A descriptor of the memory, which the caller closes."""
        ...

    def adopt(self, descriptor: int) -> int:
        """A handle of the memory behind a descriptor, which may be closed afterwards."""
        ...

    def reserve(self, n_bytes: int) -> int:
        """An address with room for so much; nothing is there yet."""
        ...

    def free(self, address: int, n_bytes: int) -> None:
        """Give back a whole reservation. Nothing of it may be mapped."""
        ...

    def map(self, address: int, n_bytes: int, handle: int, is_read_only: bool = False) -> None:
        """Memory of exactly this size appears at an address inside a reservation, to be read by this device, and written unless
        `is_read_only`. A driver that cannot map so lets the device write too."""
        ...

    def unmap(self, address: int, n_bytes: int) -> None:
        """Undo one `map`."""
        ...

    def zero(self, address: int, n_bytes: int) -> None:
        """Fill mapped memory with zeros; returns when that is done."""
        ...

    def wait_idle(self) -> None:
        """Wait until the device has done all that this process asked for."""
        ...


class _Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class _Flags(ctypes.Structure):
    _fields_ = (("compression", c_ubyte), ("rdma", c_ubyte), ("usage", c_ushort), ("reserved", c_ubyte * 4))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (("type", c_int), ("handles", c_int), ("location", _Location), ("win32", c_void_p), ("flags", _Flags))


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", c_int))


_ARGUMENTS = {
    "cuMemGetAllocationGranularity": (POINTER(c_size_t), POINTER(_Properties), c_int),
    "cuMemCreate": (POINTER(c_uint64), c_size_t, POINTER(_Properties), c_uint64),
    "cuMemRelease": (c_uint64,),
    "cuMemExportToShareableHandle": (c_void_p, c_uint64, c_int, c_uint64),
    "cuMemImportFromShareableHandle": (POINTER(c_uint64), c_void_p, c_int),
    "cuMemAddressReserve": (POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemSetAccess": (c_uint64, c_size_t, POINTER(_Access), c_size_t),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemsetD8_v2": (c_uint64, c_ubyte, c_size_t),
    "cuCtxSynchronize": (),
}


class CudaDriver(Driver):
    """The driver of this machine, for one device."""

    def __init__(self, device_index: int) -> None:
        """Load the driver for the device of this index. Raises: CudaError when there is none, or it cannot do this."""
        self._call = CudaLibrary(_ARGUMENTS).call
        location = _Location(_DEVICE, device_index)
        self._properties = _Properties(type=_PINNED, handles=_POSIX_DESCRIPTOR, location=location)
        self._location = location
        granularity = c_size_t()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(self._properties), 0)
        self.granularity_bytes = granularity.value

    def create(self, n_bytes: int) -> int:
        """New physical memory of the device, n_bytes, with any content. Returns its handle. Raises: CudaError."""
        handle = c_uint64()
        self._call("cuMemCreate", ctypes.byref(handle), n_bytes, ctypes.byref(self._properties), 0)
        return handle.value

    def release(self, handle: int) -> None:
        """Releases a handle of `create` or `adopt`; mappings stay. Raises: CudaError."""
        self._call("cuMemRelease", handle)

    def export(self, handle: int) -> int:
        """A new POSIX file descriptor of the memory, which the caller closes. Raises: CudaError."""
        descriptor = c_int(-1)
        self._call("cuMemExportToShareableHandle", ctypes.addressof(descriptor), handle, _POSIX_DESCRIPTOR, 0)
        return descriptor.value

    def adopt(self, descriptor: int) -> int:
        """A handle of the memory behind a descriptor of `export`, also of another process. Raises: CudaError."""
        handle = c_uint64()
        self._call("cuMemImportFromShareableHandle", ctypes.byref(handle), descriptor, _POSIX_DESCRIPTOR)
        return handle.value

    def reserve(self, n_bytes: int) -> int:
        """An address with room for n_bytes, where nothing is mapped yet. Raises: CudaError."""
        address = c_uint64()
        self._call("cuMemAddressReserve", ctypes.byref(address), n_bytes, 0, 0, 0)
        return address.value

    def free(self, address: int, n_bytes: int) -> None:
        """Gives back a whole reservation, of which nothing is mapped. Raises: CudaError."""
        self._call("cuMemAddressFree", address, n_bytes)

    def map(self, address: int, n_bytes: int, handle: int, is_read_only: bool = False) -> None:
        """Maps memory of exactly n_bytes at an address inside a reservation, and lets the device read it, and write it unless
        `is_read_only`. A driver that refuses that lets the device write too, with a warning in the log. Raises: CudaError."""
        self._call("cuMemMap", address, n_bytes, 0, handle, 0)
        if is_read_only:
            try:
                self._allow(address, n_bytes, _READ)
                return
            except CudaError as error:
                structlog.get_logger().warning("shared memory could not be made read-only", reason=str(error))
        self._allow(address, n_bytes, _READ_WRITE)

    def _allow(self, address: int, n_bytes: int, flags: int) -> None:
        access = _Access(self._location, flags)
        self._call("cuMemSetAccess", address, n_bytes, ctypes.byref(access), 1)

    def unmap(self, address: int, n_bytes: int) -> None:
        """Undoes one `map`. Raises: CudaError."""
        self._call("cuMemUnmap", address, n_bytes)

    def zero(self, address: int, n_bytes: int) -> None:
        """Fills mapped memory with zeros, and waits until that is done. Raises: CudaError."""
        self._call("cuMemsetD8_v2", address, 0, n_bytes)
        self.wait_idle()

    def wait_idle(self) -> None:
        """Waits until the device has done all that this process asked for. Raises: CudaError, also for an earlier fault."""
        self._call("cuCtxSynchronize")
