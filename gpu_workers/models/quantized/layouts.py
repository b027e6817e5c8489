"""Reads any block of a weight from the tensors that a layout has for it.

Names and shapes, X being a layer [out, in] and g the inputs of a group:

    SCALED  X.weight [out, in] e4m3 or int8; X.weight_scale or X.weight_scale_inv, factors both: one number, [out, 1], or one
            for each block of outputs and inputs; X.weight_zero_point [out, 1] int8, where there are any
    PACKED  X.weight_packed [out, in / 8] int32; X.weight_scale [out, in / g]; X.weight_zero_point [out / 8, in / g] int32;
            X.weight_g_idx [in], where groups are not of neighbours
    AWQ     X.qweight [in, out / 8] int32; X.qzeros [in / g, out / 8] int32; X.scales [in / g, out]
    GPTQ    X.qweight [in / 8, out] int32; X.qzeros and X.scales as in AWQ; X.g_idx [in]

An 8 is the number of 4-bit integers in a word; with 8 bits it is 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch

from gpu_workers.layers.quantized.stored_weight import StoredWeight
from gpu_workers.model_store.quantized.form import Layout, QuantizedWeights
from gpu_workers.models.quantized.bits import unpack_awq, unpack_words, words_of

Shape = tuple[int, ...]


class LayerTensors(Protocol):
    """The tensors of one layer, by the last part of their names."""

    def shape(self, kind: str) -> Shape | None:
        """The shape of a tensor; None if the layer has none of this kind."""
        ...

    def part(self, kind: str, rows: range | None = None, columns: range | None = None) -> torch.Tensor:
        """A block of it, or all, on the device where it is wanted."""
        ...


def weight_shape(form: QuantizedWeights, layer: LayerTensors) -> Shape | None:
    """[out, in] of a quantised weight; None if the layer has none."""
    if (packed := layer.shape("weight_packed")) is not None:
        return packed[0], _scaled_inputs(form, layer, packed[1] * (32 // form.numbers.bits))
    if (words := layer.shape("qweight")) is not None:
        return (words[1] * 8, words[0]) if form.layout is Layout.AWQ else (words[1], words[0] * 32 // form.numbers.bits)
    return layer.shape("weight") if scale_kind(layer) is not None else None


def read_stored(form: QuantizedWeights, layer: LayerTensors, rows: range, columns: range) -> StoredWeight:
    """A block of a quantised weight."""
    return _READERS[form.layout](form, layer, rows, columns)


def scale_kind(layer: LayerTensors) -> str | None:
    """The kind of tensor that holds the scales of a SCALED weight; None if there is none."""
    return next((kind for kind in ("weight_scale", "weight_scale_inv") if layer.shape(kind) is not None), None)


def scale_fault(form: QuantizedWeights, layer: LayerTensors, shape: Shape) -> str | None:
    """What is wrong with the scales of a weight [out, in] of this shape; None if nothing is."""
    n_out, n_in = shape
    is_packed_by_inputs = layer.shape("qweight") is not None
    kind = "scales" if is_packed_by_inputs else scale_kind(layer)
    found = None if kind is None else layer.shape(kind)
    n_groups = -(-n_in // form.group) if form.group else 1
    expected: list[Shape] = [(n_groups, n_out) if is_packed_by_inputs else (n_out, n_groups)]
    if form.layout is Layout.SCALED:
        expected += [(), (1,), (1, 1), (n_out,), (n_out, 1)]
        if form.block is not None:
            expected[0] = (-(-n_out // form.block[0]), -(-n_in // form.block[1]))
    if found in expected:
        return None
    return f"{kind or 'scales'}: expected {list(expected[0])}, got {'none' if found is None else list(found)}"


def _scaled_inputs(form: QuantizedWeights, layer: LayerTensors, most: int) -> int:
    """Inputs of a packed weight, whose last word may not be full: groups are."""
    scales = layer.shape("weight_scale")
    return min(most, scales[1] * form.group) if form.group and scales is not None else most


def _read_scaled(form: QuantizedWeights, layer: LayerTensors, rows: range, columns: range) -> StoredWeight:
    kind = scale_kind(layer)
    assert kind is not None
    numbers, shape = layer.part("weight", rows, columns), layer.shape(kind) or ()
    zeros = None
    if len(shape) == 2 and shape not in ((1, 1), (_layer_rows(layer), 1)):
        n_out, n_in = form.block or (1, form.group)
        blocks = layer.part(kind, range(rows.start // n_out, -(-rows.stop // n_out))).float()
        of_row = torch.arange(rows.start, rows.stop, device=numbers.device) // n_out - rows.start // n_out
        scales, groups = blocks[of_row], _groups(columns, n_in, numbers)
    else:
        scales, groups = _of_rows(layer, kind, rows).float(), None
        if layer.shape("weight_zero_point") is not None:
            zeros = _of_rows(layer, "weight_zero_point", rows).to(torch.int16)
    return StoredWeight(numbers, scales, 8, zeros, groups)


def _layer_rows(layer: LayerTensors) -> int:
    """Outputs of a SCALED weight."""
    shape = layer.shape("weight")
    return shape[0] if shape else 0


def _of_rows(layer: LayerTensors, kind: str, rows: range) -> torch.Tensor:
    """One number for each row, [out, 1], from a tensor that has one for each or one for all."""
    shape = layer.shape(kind)
    if shape and shape[0] > 1:
        return layer.part(kind, rows).reshape(-1, 1)
    return layer.part(kind).reshape(1, 1).expand(len(rows), 1)


def _read_packed(form: QuantizedWeights, layer: LayerTensors, rows: range, columns: range) -> StoredWeight:
    bits = form.numbers.bits
    words, within = words_of(columns, bits)
    numbers = unpack_words(layer.part("weight_packed", rows, words), bits)[:, within]
    scales = layer.part("weight_scale", rows).float().reshape(len(rows), -1)
    if layer.shape("weight_zero_point") is not None:
        words, within = words_of(rows, bits)
        zeros = unpack_words(layer.part("weight_zero_point", words).T, bits)[:, within].T.to(torch.int16)
    else:
        zeros = torch.full_like(scales, 1 << (bits - 1), dtype=torch.int16)
    index = layer.part("weight_g_idx") if layer.shape("weight_g_idx") is not None else None
    return StoredWeight(numbers, scales, bits, zeros, _groups(columns, form.group, numbers, index))


def _read_awq(form: QuantizedWeights, layer: LayerTensors, rows: range, columns: range) -> StoredWeight:
    words, within = words_of(rows, 4)
    numbers = unpack_awq(layer.part("qweight", columns, words))[:, within].T.contiguous()
    scales = layer.part("scales", None, rows).float().T.contiguous()
    if form.has_zeros:
        zeros = unpack_awq(layer.part("qzeros", None, words))[:, within].T.to(torch.int16)
    else:
        zeros = torch.full_like(scales, 8, dtype=torch.int16)
    return StoredWeight(numbers, scales, 4, zeros, _groups(columns, form.group, numbers))


def _read_gptq(form: QuantizedWeights, layer: LayerTensors, rows: range, columns: range) -> StoredWeight:
    bits = form.numbers.bits
    words, within = words_of(columns, bits)
    numbers = unpack_words(layer.part("qweight", words, rows).T, bits)[:, within]
    scales = layer.part("scales", None, rows).float().T.contiguous()
    words, within = words_of(rows, bits)
    zeros = unpack_words(layer.part("qzeros", None, words), bits)[:, within].T.to(torch.int16) + form.zeros_are_less
    index = layer.part("g_idx") if layer.shape("g_idx") is not None else None
    return StoredWeight(numbers, scales, bits, zeros, _groups(columns, form.group, numbers, index))


def _groups(columns: range, size: int, like: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor | None:
    """The group of each of these inputs; None if there is only one. index: the group of each input of the whole weight; None:
    neighbours of `size` inputs have one; 0: all."""
    if index is not None and not index.is_meta:
        return index[columns.start : columns.stop].long()
    if not size:
        return None
    return torch.arange(columns.start, columns.stop, device=like.device) // size


_READERS: Mapping[Layout, Callable[[QuantizedWeights, LayerTensors, range, range], StoredWeight]] = {
    Layout.SCALED: _read_scaled,
    Layout.PACKED: _read_packed,
    Layout.AWQ: _read_awq,
    Layout.GPTQ: _read_gptq,
}
