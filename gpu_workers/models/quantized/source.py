"""A quantised checkpoint as a source of weights: a caller that knows no format gets floats, or small numbers with scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
import torch

from gpu_workers.layers.quantized.stored_weight import StoredWeight
from gpu_workers.model_store.quantized.form import Layout, QuantizedWeights
from gpu_workers.models.quantized.layouts import LayerTensors, Shape, read_stored, scale_fault, scale_kind, weight_shape
from gpu_workers.models.weights import SafetensorsSource, TensorSource, WeightsError

_WEIGHT = ".weight"
_SLAB_ROWS = 2048  # that are turned into floats at once: they bound the memory that this takes
# of calibration: inputs, keys and values get scales of their own here
_PASSED_OVER = (
    "input_scale", "input_zero_point", "output_scale", "output_zero_point", "k_scale", "v_scale", "q_scale", "k_zero_point",
    "v_zero_point", "q_zero_point",
)  # fmt: skip
_PARTS = (
    "weight_scale", "weight_scale_inv", "weight_zero_point", "weight_packed", "weight_shape", "weight_g_idx", "qweight",
    "qzeros", "scales", "g_idx",
)  # fmt: skip
_SMALL_DTYPES = {"F8_E4M3": torch.float8_e4m3fn, "I8": torch.int8}
_DTYPES = {
    **_SMALL_DTYPES, "U8": torch.uint8, "I32": torch.int32, "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16,
    "F32": torch.float32,
}  # fmt: skip
_FLOATS = ("F16", "BF16", "F32", "F64")


class QuantizedSource(TensorSource):
    """The files of a folder whose config.json says this form. Layers that have no scales are floats in the files."""

    def __init__(self, folder: Path, form: QuantizedWeights, *, reads: bool = True) -> None:
        """reads: False where weights are only counted: then nothing is read and all tensors are on the device "meta".

        Raises: WeightsError for files that are missing or damaged, or for small numbers without scales."""
        self._files, self._form, self._reads = SafetensorsSource(folder), form, reads
        stored = self._files.shapes()
        kinds: dict[str, dict[str, str]] = {}  # by layer: names of its tensors by kind
        for name in stored:
            layer, _, kind = name.rpartition(".")
            kinds.setdefault(layer, {})[kind] = name
        self._layers = {layer: _LayerFiles(self._files, names, reads) for layer, names in kinds.items()}
        self._quantized: dict[str, Shape] = {}  # by the name of the weight: its shape
        for layer, tensors in self._layers.items():
            if (shape := weight_shape(form, tensors)) is not None:
                self._quantized[layer + _WEIGHT] = shape
        parts = {name for layer in self._layers.values() for kind, name in layer.names.items() if kind in _PARTS}
        passed_over = {name for layer in self._layers.values() for kind, name in layer.names.items() if kind in _PASSED_OVER}
        unused = parts | passed_over | self._empty_biases()
        plain = {name: shape for name, shape in stored.items() if name not in unused}
        self._shapes = {**plain, **self._quantized}
        self._check()
        if (form.passed_over or passed_over) and reads:
            structlog.get_logger().info("scales of keys, values and inputs are measured anew", in_files=len(passed_over))

    def shapes(self) -> Mapping[str, Shape]:
        """Name and shape of every tensor of the model; quantised weights have the names and shapes of floats."""
        return self._shapes

    def read(self, name: str, shape: Shape, rows: range, columns: range | None, target: torch.Tensor) -> None:
        """Fills target with a block of floats, each rounded once to float32, then to its dtype."""
        if not self._reads:
            return
        if name not in self._quantized:
            self._files.read(name, shape, rows, columns, target)
            return
        layer, columns = self._layer(name, target.device), range(shape[1]) if columns is None else columns
        for first in range(0, len(rows), _SLAB_ROWS):
            slab = rows[first : first + _SLAB_ROWS]
            target[first : first + len(slab)].copy_(read_stored(self._form, layer, slab, columns).floats())

    def stored(self, name: str, rows: range, columns: range, device: torch.device) -> StoredWeight | None:
        """A block of a weight as it is in the files, on the device; None if it is floats there."""
        if name not in self._quantized:
            return None
        return read_stored(self._form, self._layer(name, device), rows, columns)

    def leaves_floats(self, name: str) -> bool:
        """True for a weight that is floats in the files."""
        return name not in self._quantized

    def _layer(self, name: str, device: torch.device) -> _LayerFiles:
        return replace(self._layers[name.removesuffix(_WEIGHT)], device=device)

    def _empty_biases(self) -> set[str]:
        """Biases of zeros, which older programs have added to every layer of GPTQ."""
        if self._form.layout is not Layout.GPTQ:
            return set()
        layers = (layer for name, layer in self._layers.items() if name + _WEIGHT in self._quantized)
        names = {layer.names["bias"] for layer in layers if "bias" in layer.names}
        return {name for name in names if not self._files.part(name, None, None).any()}

    def _check(self) -> None:
        faults = []
        for layer, tensors in self._layers.items():
            name = tensors.names.get("weight")
            dtype = self._files.dtype(name) if name is not None else ""
            if layer + _WEIGHT not in self._quantized:
                if dtype and dtype not in _FLOATS:
                    faults.append(f"{name}: expected a weight_scale beside {dtype}, got none")
            elif dtype and dtype not in _SMALL_DTYPES:
                faults.append(f"{name}: expected {' or '.join(_SMALL_DTYPES)} beside {scale_kind(tensors)}, got {dtype}")
            elif fault := scale_fault(self._form, tensors, self._quantized[layer + _WEIGHT]):
                faults.append(f"{layer}.{fault}")
        if faults:
            raise WeightsError(f"{len(faults)} tensors do not fit quantization_config: " + "; ".join(faults))


@dataclass(frozen=True)
class _LayerFiles(LayerTensors):
    """names: of the tensors of a layer in the files, by kind."""

    files: SafetensorsSource
    names: Mapping[str, str]
    reads: bool
    device: torch.device | None = None  # where parts are wanted; None: as they are read

    def shape(self, kind: str) -> Shape | None:
        return self.files.shape(self.names[kind]) if kind in self.names else None

    def part(self, kind: str, rows: range | None = None, columns: range | None = None) -> torch.Tensor:
        name = self.names[kind]
        if self.reads:
            return self.files.part(name, rows, columns).to(self.device)
        shape, cuts = list(self.files.shape(name)), (rows, columns)
        for axis, cut in enumerate(cuts):
            if cut is not None:
                shape[axis] = len(cut)
        return torch.empty(shape, dtype=_DTYPES[self.files.dtype(name)], device="meta")
