"""Finished weights in one stretch of memory, which later processes map and use as they are.

    | tensor | tensor | ... | index of the tensors, by name |

Each tensor begins at a multiple of 512 bytes. The index ends with a checksum of all tensors. The loader counts the bytes first,
by building the model on torch's device "meta", then writes; a later process builds the same model and finds every tensor by its
name, without a read of the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import blake2b

import msgspec
import torch

from gpu_workers.layers.cpu_linear import packed_at, packed_bytes, packed_layout
from gpu_workers.models.weight_memory import WeightMemory
from gpu_workers.models.weights import WeightsError
from gpu_workers.vault.weight_vault import SealedWeights

_ALIGNMENT_BYTES = 512
_PACK_BLOCK = 64  # oneDNN pads the sides of a weight to multiples of at most so many
_INDEX_BYTES, _ENTRY_BYTES = 1 << 16, 1 << 11  # room for the index: at least, and for each tensor
_DIGEST_BYTES = 16
_SUM_WORDS = 1 << 17  # one sum for each MiB


class KeptTensor(msgspec.Struct, frozen=True, array_like=True):
    """Where a tensor lies in the memory, and how to read it."""

    dtype: str  # as torch names it: "bfloat16"
    shape: tuple[int, ...]
    first_byte: int
    n_bytes: int
    layout: bytes  # of a weight that oneDNN packed, see `cpu_linear.packed_layout`; else empty


class WeightIndex(msgspec.Struct, frozen=True, array_like=True):
    """All tensors of a rank by name, and the checksum of their memory."""

    tensors: dict[str, KeptTensor]
    checksum: bytes


class CountedWeights(WeightMemory):
    """Counts the bytes of tensors on the device "meta". `n_bytes`: what memory for all of them, with their index, needs."""

    wants_content = False

    def __init__(self, is_packed: bool) -> None:
        """is_packed: linear weights become packed copies, which may be larger."""
        self._is_packed = is_packed
        self._tensors: list[torch.Tensor] = []
        self.n_bytes = _INDEX_BYTES

    def keep(self, name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Make the tensor `name` and add its bytes to `n_bytes`."""
        tensor = make()
        is_matrix = self._is_packed and tensor.dim() == 2
        sides = [_padded(side, _PACK_BLOCK) for side in tensor.shape] if is_matrix else tensor.shape
        if self._is_packed or not any(tensor is other for other in self._tensors):
            self.n_bytes += _padded(math.prod(sides) * tensor.itemsize, _ALIGNMENT_BYTES)
        self.n_bytes += _ENTRY_BYTES
        self._tensors.append(tensor)
        return tensor


class WrittenWeights(WeightMemory):
    """Moves each tensor into `memory`: uint8 on the device of the model, of at least `CountedWeights.n_bytes`."""

    wants_content = True

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory, self._end = memory, 0
        self._kept: dict[str, KeptTensor] = {}
        self._placed: list[tuple[torch.Tensor, KeptTensor]] = []

    def keep(self, name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Make the tensor `name` and move it into the memory; one that is there already gets a second name. Raises:
        WeightsError when the memory is full."""
        made = make()
        placed, kept = next((pair for pair in self._placed if pair[0] is made), (None, None))
        if placed is None or kept is None:
            kept = self._write(name, made)
            placed = _tensor_at(self._memory, kept)
            self._placed.append((placed, kept))
        self._kept[name] = kept
        return placed

    def seal(self) -> SealedWeights:
        """Write the index after the tensors; the last write. Raises: WeightsError when the memory is full."""
        index = msgspec.msgpack.encode(WeightIndex(self._kept, checksum_of(self._memory[: self._end])))
        self._check_room(self._end + len(index))
        self._memory[self._end : self._end + len(index)].copy_(torch.frombuffer(bytearray(index), dtype=torch.uint8))
        return SealedWeights(
            n_bytes=self._memory.numel(), tensor_bytes=self._end, index_bytes=len(index), index_digest=_digest(index)
        )

    def _write(self, name: str, made: torch.Tensor) -> KeptTensor:
        content = packed_bytes(made) if made.is_mkldnn else made.contiguous().view(-1).view(torch.uint8)
        first, n_bytes = self._end, content.numel()
        self._check_room(first + n_bytes)
        self._memory[first : first + n_bytes].copy_(content)
        self._end = _padded(first + n_bytes, _ALIGNMENT_BYTES)
        layout = packed_layout(made) if made.is_mkldnn else b""
        return KeptTensor(str(made.dtype).removeprefix("torch."), tuple(made.shape), first, n_bytes, layout)

    def _check_room(self, n_bytes: int) -> None:
        if n_bytes > self._memory.numel():
            raise WeightsError(f"shared weights: expected at most {self._memory.numel()} bytes, got {n_bytes} or more")


class MappedWeights(WeightMemory):
    """Finds each tensor in `memory`, where `WrittenWeights` of another process has put it. `make` is never called."""

    wants_content = False

    def __init__(self, memory: torch.Tensor, index: WeightIndex) -> None:
        self._memory, self._index = memory, index

    def keep(self, name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The tensor `name` in the memory. Raises: WeightsError if there is none of this name."""
        kept = self._index.tensors.get(name)
        if kept is None:
            raise WeightsError(f"shared weights: expected {name} among {len(self._index.tensors)} tensors, got none")
        return _tensor_at(self._memory, kept)


def read_index(memory: torch.Tensor, sealed: SealedWeights) -> WeightIndex | None:
    """The index of sealed memory; None if a bit of the index or of a tensor is not what it was. Reads all tensors once."""
    index = memory[sealed.tensor_bytes : sealed.tensor_bytes + sealed.index_bytes].cpu().numpy().tobytes()
    if _digest(index) != sealed.index_digest:
        return None
    decoded = msgspec.msgpack.decode(index, type=WeightIndex)
    return decoded if checksum_of(memory[: sealed.tensor_bytes]) == decoded.checksum else None


def checksum_of(memory: torch.Tensor) -> bytes:
    """memory: uint8 [n], n a multiple of 8, on any device. A hash of the sums of its 64-bit words, one sum for each MiB: it is
    as fast as reading the memory once, and every single flipped bit changes it. It is no protection against a forger."""
    words = memory.view(torch.int64)
    n_rows = words.numel() // _SUM_WORDS
    rows, rest = words[: n_rows * _SUM_WORDS].view(n_rows, _SUM_WORDS), words[n_rows * _SUM_WORDS :]
    return _digest(torch.cat((rows.sum(1), rest.sum().view(1))).cpu().numpy().tobytes())


def _tensor_at(memory: torch.Tensor, kept: KeptTensor) -> torch.Tensor:
    """A view of `memory`; whoever uses a weight that oneDNN packed must keep `memory` by a view as well."""
    part, dtype = memory[kept.first_byte : kept.first_byte + kept.n_bytes], getattr(torch, kept.dtype)
    return packed_at(part, kept.shape, dtype, kept.layout) if kept.layout else part.view(dtype).view(kept.shape)


def _padded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()
