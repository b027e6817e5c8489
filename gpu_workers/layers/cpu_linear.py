"""Linear layers on CPUs: weights packed for oneDNN, where this build of torch and this processor have that.

Measured on two Zen 4 cores, SmolLM2-135M, all linear layers of a step against torch's own `linear`: float32 1 row 45 -> 23 ms,
32 rows 92 -> 52 ms; bfloat16 1 row 19 -> 14 ms, 32 rows 38 -> 30 ms.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

_PACK_ROWS = 32  # rows for which oneDNN chooses the layout; the one it chooses for 32 is the best at any number of rows
_PACK_THREADS = 8  # for 16 oneDNN chooses another layout for narrow weights: no faster, and our kernels do not read it
_LEAST_ROWS = 4  # with fewer rows oneDNN is slower: it takes longer for 1 row than for 4
_TORCH_LIBRARY = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
_CPU = "aoti_torch_device_type_cpu"
_BLOB_ARGUMENTS = (
    ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32,
    ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64,
)  # fmt: skip


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """True if this torch and this processor multiply with packed weights of this dtype, natively and correctly. The
    answer is found by trying once, because the calls are private to torch."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        x = torch.arange(32, dtype=dtype).view(2, 16)
        return packed_linear(x, pack_weight(torch.eye(16, dtype=dtype)), None).equal(x)
    except (AttributeError, RuntimeError):
        return False


def packs_weights(device: torch.device, dtype: torch.dtype) -> bool:
    """True if linear layers pack their weights on this device: oneDNN on a CPU that can."""
    return device.type == "cpu" and can_pack(dtype)


def pack_weight(weight: torch.Tensor) -> torch.Tensor:
    """weight [out, in], float32 or bfloat16 on the CPU -> a packed copy that only `packed_linear` can read."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(min(n_threads, _PACK_THREADS))
    try:
        return torch.ops.mkldnn._reorder_linear_weight.default(weight, _PACK_ROWS)
    finally:
        torch.set_num_threads(n_threads)


def packed_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [T, in] on the CPU, weight from `pack_weight` of the same dtype, bias [out] -> [T, out]: x @ weight.T + bias."""
    rows = x.shape[0]
    if rows >= _LEAST_ROWS:
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    if rows == 0:
        return x.new_empty((0, weight.shape[0]))
    padded = torch.cat((x,) * -(-_LEAST_ROWS // rows))  # copies of the rows: one call, where padding with zeros takes four
    return torch.ops.mkldnn._linear_pointwise.default(padded, weight, bias, "none", [], "")[:rows]


def packed_bytes(packed: torch.Tensor) -> torch.Tensor:
    """The memory of a packed weight: uint8 [n_bytes], valid as long as the packed weight lives."""
    n_bytes, address = torch.ops.mkldnn._nbytes(packed), torch.ops.mkldnn.data_ptr(packed)
    return torch.frombuffer((ctypes.c_char * n_bytes).from_address(address), dtype=torch.uint8)


def packed_layout(packed: torch.Tensor) -> bytes:
    """The order of the numbers of a packed weight, for `packed_at` in this version of torch."""
    return bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(packed).numpy())


def packed_at(memory: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, layout: bytes) -> torch.Tensor:
    """A packed weight [out, in] of float32 or bfloat16 whose numbers lie in `memory`, uint8 on the CPU. The caller keeps that.
    layout: from `packed_layout`. The calls are those with which compiled models of torch find their weights.

    Raises: AttributeError or RuntimeError when this torch cannot do that; see `can_place_packed`."""
    library = ctypes.CDLL(_TORCH_LIBRARY)
    sizes, strides = (ctypes.c_int64 * 2)(*shape), (ctypes.c_int64 * 2)(shape[1], 1)
    numbers = (getattr(library, name)() for name in (f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}", _CPU))
    dtype_number, cpu_number = numbers
    handle = ctypes.c_void_p()
    make = library.aoti_torch_create_tensor_from_blob_v2
    make.argtypes = _BLOB_ARGUMENTS
    status = make(
        memory.data_ptr(), 2, sizes, strides, 0, dtype_number, cpu_number, 0, ctypes.byref(handle),
        library.aoti_torch_layout__mkldnn(), layout, len(layout),
    )  # fmt: skip
    if status or handle.value is None:
        raise RuntimeError(f"aoti_torch_create_tensor_from_blob_v2: status {status}")
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    take = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr  # pyright: ignore[reportAttributeAccessIssue]
    return take(capsule(handle, None, None))


@cache
def can_place_packed(dtype: torch.dtype) -> bool:
    """True if `packed_at` works with this torch and this processor. The answer is found by trying once."""
    if not can_pack(dtype):
        return False
    weight = torch.arange(64 * 16, dtype=dtype).view(64, 16)
    packed = pack_weight(weight)
    try:
        memory = packed_bytes(packed).clone()
        return packed_at(memory, (64, 16), dtype, packed_layout(packed)).to_dense().equal(weight)
    except (AttributeError, RuntimeError, OSError):
        return False
