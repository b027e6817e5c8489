"""Reads a rank's parts of checkpoint tensors, or random ones of the same shape, into the tensors that it computes with.

A source names tensors as Hugging Face checkpoints do and yields any block of rows and columns of one. The architecture
knows which tensors there are and which blocks belong together. All misfits are reported before any tensor is read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from gpu_workers.layers.quantized.stored_weight import StoredWeight, join_rows
from gpu_workers.layers.shard import Shard
from gpu_workers.layers.torch_ops import Ops
from gpu_workers.model_store.weight_files import WeightsError, weight_files
from gpu_workers.models.weight_memory import PrivateWeights, WeightMemory
from gpu_workers.settings import Quantization

RANDOM_STD = 0.02
_PREFIX, _HEAD = "model.", "lm_head.weight"
_HEADER_LENGTH_BYTES = 8  # at the beginning of a safetensors file, little-endian
_MAX_HEADER_BYTES = 100_000_000  # the most that the safetensors library accepts


class TensorSource(Protocol):
    """Where blocks of named tensors come from. `rows` and `columns` are ranges of the whole tensor."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of every tensor of the source; empty for a source that can make any."""
        ...

    def read(self, name: str, shape: tuple[int, ...], rows: range, columns: range | None, target: torch.Tensor) -> None:
        """Fills target [len(rows)] or [len(rows), len(columns)] (any dtype and device) from tensor `name` of `shape`."""
        ...

    def stored(self, name: str, rows: range, columns: range, device: torch.device) -> StoredWeight | None:
        """A block of a weight as the checkpoint stores it, on the device; None where that is floats."""
        return None

    def leaves_floats(self, name: str) -> bool:
        """True for a weight that a quantised checkpoint has left in floats, because rounding it costs too much."""
        return False


class SafetensorsSource(TensorSource):
    """The *.safetensors files of a folder. They are mapped, and read when a block is asked for. In files of a model without a
    head, as embedding models are published, names lack the prefix "model."; here they have it.

    Raises: WeightsError if a file is missing; SafetensorError if one is damaged."""

    def __init__(self, folder: Path) -> None:
        self._stored: dict[str, tuple[Any, str]] = {}  # by our name: the file, and the name there
        for path in weight_files(folder):
            opened = _open(path)
            for name in opened.keys():  # noqa: SIM118  (not a mapping)
                self._stored[name] = (opened, name)
        if not any(name.startswith(_PREFIX) for name in self._stored):
            self._stored = {name if name == _HEAD else _PREFIX + name: stored for name, stored in self._stored.items()}

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of every tensor of the files."""
        return {name: self.shape(name) for name in self._stored}

    def read(self, name: str, shape: tuple[int, ...], rows: range, columns: range | None, target: torch.Tensor) -> None:
        """Copies a block of a stored tensor into target, which may have another dtype and device."""
        opened, stored_name = self._stored[name]
        stored = opened.get_slice(stored_name)
        if columns is None or len(shape) == 1:
            target.copy_(stored[rows.start : rows.stop])
        else:
            target.copy_(stored[rows.start : rows.stop, columns.start : columns.stop])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a stored tensor."""
        opened, stored_name = self._stored[name]
        return tuple(opened.get_slice(stored_name).get_shape())

    def dtype(self, name: str) -> str:
        """Its dtype as the file names it: "F8_E4M3"."""
        opened, stored_name = self._stored[name]
        return opened.get_slice(stored_name).get_dtype()

    def part(self, name: str, rows: range | None, columns: range | None) -> torch.Tensor:
        """A block of a stored tensor as it is, on the CPU; None: all rows, all columns."""
        opened, stored_name = self._stored[name]
        if rows is None and columns is None:
            return opened.get_tensor(stored_name)
        cuts = [slice(None) if cut is None else slice(cut.start, cut.stop) for cut in (rows, columns)]
        stored = opened.get_slice(stored_name)
        return stored[cuts[0]] if columns is None else stored[cuts[0], cuts[1]]


class NoSource(TensorSource):
    """For weights that need no content: they are counted only, or are there already."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """No names: any tensor may be asked for."""
        return {}

    def read(self, name: str, shape: tuple[int, ...], rows: range, columns: range | None, target: torch.Tensor) -> None:
        """Does nothing: the target keeps what is in it."""


class RandomSource(TensorSource):
    """Normally distributed weights (norms 1, biases 0), seeded by the tensor's name, so that every split has the same model."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """No names: any tensor may be asked for."""
        return {}

    def read(self, name: str, shape: tuple[int, ...], rows: range, columns: range | None, target: torch.Tensor) -> None:
        """Fills target with a block of the random tensor `name`, which is made whole, in float32 on the target's device.
        Arguments as in `TensorSource.read`."""
        if len(shape) == 1:
            target.fill_(0.0 if name.endswith("bias") else 1.0)
            return
        generator = torch.Generator(device=target.device).manual_seed(self._seed + zlib.crc32(name.encode()))
        whole = torch.randn(shape, generator=generator, device=target.device).mul_(RANDOM_STD)
        block = whole[rows.start : rows.stop]
        target.copy_(block if columns is None else block[:, columns.start : columns.stop])


def _open(path: Path) -> Any:
    """A handle of safetensors. Raises: WeightsError when the file is cut or damaged."""
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        size, whole = path.stat().st_size, _whole_bytes(path)
        what = f"is not complete ({size} of {whole} bytes)" if size < whole else f"is damaged ({error})"
        raise WeightsError(f"weights: {path.name} {what}; expected the whole file in {path.parent}") from None


def _whole_bytes(path: Path) -> int:
    """The size that a safetensors file should have by its header, which begins with its own length; 0 if it has no header."""
    with path.open("rb") as file:
        prefix = file.read(_HEADER_LENGTH_BYTES)
        n_header = int.from_bytes(prefix, "little")
        if len(prefix) < _HEADER_LENGTH_BYTES or n_header > _MAX_HEADER_BYTES:
            return 0
        raw = file.read(n_header)
    if len(raw) < n_header:
        return _HEADER_LENGTH_BYTES + n_header
    try:
        entries = json.loads(raw).items()
        return (
            _HEADER_LENGTH_BYTES + n_header + max(entry["data_offsets"][1] for name, entry in entries if name != "__metadata__")
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return 0


@dataclass(frozen=True)
class WeightPlacement:
    """Device and dtype of weights, what keeps the finished ones, and how linear layers round theirs."""

    device: torch.device
    dtype: torch.dtype
    memory: WeightMemory = field(default_factory=PrivateWeights)
    quantization: Quantization = "none"  # of the weights of linear layers

    def empty(self, *shape: int) -> torch.Tensor:
        """An uninitialised tensor of this shape on the device, of the dtype."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class Block:
    """Some rows of one checkpoint tensor; all of them if `rows` is None."""

    name: str
    rows: range | None = None


class WeightReader:
    """Reads one rank's parts of a checkpoint into tensors of `placement`, in the form in which the rank computes with them.
    Each one is kept under the name of its first block."""

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        source: TensorSource,
        placement: WeightPlacement,
        ops: Ops | None = None,
    ) -> None:
        """shapes: name and shape of every tensor that the whole model has, as the architecture derives them from its config.
        ops: packs linear weights, see `Ops.pack_linear`; None: they stay as they are.
        Raises WeightsError naming each tensor of the source that is missing, unexpected or of another shape."""
        _compare(shapes, source.shapes())
        self._shapes, self._source, self._placement, self._ops = shapes, source, placement, ops
        self._memory = placement.memory

    def read(self, block: Block, finish: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor) -> torch.Tensor:
        """The block, as `finish` changes it."""
        return self._memory.keep(block.name, lambda: finish(self._read(block)))

    def read_all(self, *blocks: Block) -> torch.Tensor:
        """The blocks of tensors of one dimension, concatenated: [numbers of all blocks]."""
        return self._memory.keep(blocks[0].name, lambda: self._read(*blocks))

    def read_linear(self, *blocks: Block, columns: range | None = None) -> Any:
        """The blocks, concatenated by rows, [rows of all blocks, len(columns)], all columns if None; packed."""
        name, ops = blocks[0].name, self._ops
        if ops is None:
            return self._memory.keep(name, lambda: self._read(*blocks, columns=columns))
        return ops.linear_weight(self._memory.keep(name, lambda: self._packed(ops, blocks, columns)))

    def read_vocabulary(self, name: str, shard: Shard) -> torch.Tensor:
        """The rank's rows of an embedding [vocabulary, hidden]: [shard.vocabulary_rows, hidden], filled up with zeros where the
        rank has fewer."""
        return self._memory.keep(name, lambda: self._read_vocabulary(name, shard))

    def no_vocabulary(self, width: int) -> torch.Tensor:
        """In place of the embedding of a stage that has none: [0, width]."""
        return self._placement.empty(0, width)

    def read_head(self, name: str, shard: Shard, tied: torch.Tensor | None) -> Any:
        """The rank's rows of a head, as `read_vocabulary` gives them, packed. tied: the embedding, if it is the head."""
        ops = self._ops

        def make() -> torch.Tensor:
            return self._read_vocabulary(name, shard) if tied is None else tied

        if ops is None:
            return self._memory.keep(name, make)
        return ops.linear_weight(self._memory.keep(name, lambda: ops.pack_head(make())))

    def _packed(self, ops: Ops, blocks: Sequence[Block], columns: range | None) -> torch.Tensor:
        """As the checkpoint stores them where the back end multiplies with that, else from floats. What a quantised checkpoint
        has left in floats is packed as a head is: with less loss."""
        stored = self._stored(blocks, columns) if ops.takes_stored else None
        packed = None if stored is None else ops.pack_stored(stored)
        if packed is not None:
            return packed
        is_left = any(self._source.leaves_floats(block.name) for block in blocks)
        return (ops.pack_head if is_left else ops.pack)(self._read(*blocks, columns=columns))

    def _stored(self, blocks: Sequence[Block], columns: range | None) -> StoredWeight | None:
        parts = []
        for block in blocks:
            n_out, n_in = self._shapes[block.name]
            rows, inputs = range(n_out) if block.rows is None else block.rows, range(n_in) if columns is None else columns
            part = self._source.stored(block.name, rows, inputs, self._placement.device)
            if part is None:
                return None
            parts.append(part)
        return join_rows(parts)

    def _read(self, *blocks: Block, columns: range | None = None) -> torch.Tensor:
        """The blocks, concatenated by rows into one new tensor: [rows of all blocks] for tensors of one dimension, else
        [rows of all blocks, len(columns)], all columns if None; dtype and device of the placement."""
        rows = [range(self._shapes[block.name][0]) if block.rows is None else block.rows for block in blocks]
        shape = self._shapes[blocks[0].name]
        width = () if len(shape) == 1 else (shape[1] if columns is None else len(columns),)
        target = self._placement.empty(sum(map(len, rows)), *width)
        start = 0
        for block, part in zip(blocks, rows, strict=True):
            self._source.read(block.name, self._shapes[block.name], part, columns, target[start : start + len(part)])
            start += len(part)
        return target

    def _read_vocabulary(self, name: str, shard: Shard) -> torch.Tensor:
        part = self._read(Block(name, shard.vocabulary))
        if len(shard.vocabulary) == shard.vocabulary_rows:
            return part
        padded = self._placement.empty(shard.vocabulary_rows, part.shape[1]).zero_()
        padded[: part.shape[0]] = part
        return padded


def _compare(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> None:
    if not found:
        return
    faults = [f"missing {name} {list(expected[name])}" for name in sorted(expected.keys() - found.keys())]
    surplus = sorted(found.keys() - expected.keys() - {_HEAD})  # a stored head is a copy of tied embeddings, or is not needed
    faults += [f"unexpected {name} {list(found[name])}" for name in surplus if not name.endswith("rotary_emb.inv_freq")]
    both = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
    faults += [f"{name}: expected {list(expected[name])}, got {list(found[name])}" for name in both]
    if faults:
        raise WeightsError(f"{len(faults)} tensors do not fit config.json: " + "; ".join(faults))
