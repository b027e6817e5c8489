"""Writes quantised checkpoints as other programs do, and the floats that they stand for: the oracle of the readers.

Packing is written out number by number, so that it shares nothing with the code that unpacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which output each of the eight places of a word has
GROUP, BLOCK = 32, 48


@dataclass(frozen=True)
class Written:
    """The tensors of one layer without its name, and the floats that they stand for, float32."""

    tensors: Tensors
    floats: torch.Tensor


@dataclass(frozen=True)
class Format:
    """One way to write a checkpoint. `config`: its quantization_config."""

    config: Config
    write: Callable[[torch.Tensor], Written]


def write_quantized(plain: Path, folder: Path, kind: str, left: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """The checkpoint of `plain` quantised, and one in float32 of what it stands for; both are new folders in `folder`.
    kind: a key of FORMATS; left: parts of names of layers that stay floats."""
    form = FORMATS[kind]
    config = json.loads((plain / "config.json").read_text())
    small: Tensors = {}
    floats: Tensors = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if "_proj.weight" not in name or any(part in name for part in left):
            small[name] = floats[name] = tensor.float()
            continue
        written = form.write(tensor.float())
        small |= {f"{layer}.{key}": value.contiguous() for key, value in written.tensors.items()}
        floats[name] = written.floats.contiguous()
    quantized, wide = folder / "quantized", folder / "floats"
    ignored = {"ignore": ["lm_head", *left]} if "config_groups" in form.config else {"modules_to_not_convert": [*left]}
    for path, tensors, extra in ((quantized, small, {"quantization_config": {**form.config, **ignored}}), (wide, floats, {})):
        path.mkdir()
        (path / "config.json").write_text(json.dumps({**config, **extra}))
        save_file(tensors, path / "model.safetensors")
        for file in plain.glob("tokenizer*"):
            (path / file.name).symlink_to(file)
    return quantized, wide


def compressed(format_name: str, weights: Config, inputs: Config | None = None, **keys: Any) -> Config:
    """The quantization_config of compressed-tensors for one group of layers."""
    group = {"targets": ["Linear"], "weights": {"dynamic": False, **weights}, "input_activations": inputs}
    config = {"quant_method": "compressed-tensors", "format": format_name, "quantization_status": "compressed"}
    return {**config, "config_groups": {"group_0": group}, **keys}


def _float8(weight: torch.Tensor, scales: torch.Tensor, names: Mapping[str, torch.Tensor]) -> Written:
    """scales: broadcast to the weight."""
    numbers = (weight / scales).clamp(-448, 448).to(torch.float8_e4m3fn)
    return Written({"weight": numbers, **names}, numbers.float() * scales)


def _rows_of_float8(weight: torch.Tensor) -> Written:
    scales = (weight.abs().amax(1, keepdim=True) / 448).bfloat16()
    return _float8(weight, scales.float(), {"weight_scale": scales})


def _whole_float8(weight: torch.Tensor) -> Written:
    scale = (weight.abs().amax() / 448).view(1)
    return _float8(weight, scale, {"weight_scale": scale, "input_scale": torch.ones(1)})


def _scalar_float8(weight: torch.Tensor) -> Written:
    scale = weight.abs().amax() / 448
    return _float8(weight, scale, {"weight_scale": scale, "input_scale": torch.tensor(1.0)})


def _blocks_of_float8(name: str) -> Callable[[torch.Tensor], Written]:
    def write(weight: torch.Tensor) -> Written:
        n_out, n_in = weight.shape
        scales = torch.zeros(-(-n_out // BLOCK), -(-n_in // BLOCK))
        wide = torch.zeros_like(weight)
        for row in range(len(scales)):
            for column in range(scales.shape[1]):
                rows, columns = (slice(first * BLOCK, (first + 1) * BLOCK) for first in (row, column))
                scales[row, column] = weight[rows, columns].abs().amax() / 448
                wide[rows, columns] = scales[row, column]
        return _float8(weight, wide, {name: scales})

    return write


def _rows_of_int8(dtype: torch.dtype) -> Callable[[torch.Tensor], Written]:
    def write(weight: torch.Tensor) -> Written:
        scales = (weight.abs().amax(1, keepdim=True) / 127.5).to(dtype)
        numbers = (weight / scales.float()).round().clamp(-128, 127).to(torch.int8)
        return Written({"weight": numbers, "weight_scale": scales}, numbers.float() * scales.float())

    return write


def _uneven_int8(weight: torch.Tensor) -> Written:
    """With a zero for each output."""
    least, greatest = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    scales = (greatest - least) / 255
    zeros = (-128 - least / scales).round().clamp(-128, 127)
    numbers = (weight / scales + zeros).round().clamp(-128, 127)
    tensors = {"weight": numbers.to(torch.int8), "weight_scale": scales, "weight_zero_point": zeros.to(torch.int8)}
    return Written(tensors, (numbers - zeros) * scales)


@dataclass(frozen=True)
class _Grouped:
    """numbers [out, in] of 0 to 2 ** bits - 1, scales and zeros [out, n_groups], the group of each input."""

    numbers: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    groups: torch.Tensor

    @property
    def floats(self) -> torch.Tensor:
        return (self.numbers - self.zeros[:, self.groups]).float() * self.scales[:, self.groups].float()


def _in_groups(
    weight: torch.Tensor, bits: int, *, is_even: bool, dtype: torch.dtype = torch.float16, is_shuffled: bool = False
) -> _Grouped:
    n_in, greatest = weight.shape[1], 2**bits - 1
    groups = torch.arange(n_in) // GROUP
    if is_shuffled:
        groups = groups[torch.randperm(n_in, generator=torch.Generator().manual_seed(3))]
    parts = [weight[:, groups == group] for group in range(-(-n_in // GROUP))]
    scales, zeros = [], []
    for part in parts:
        least, most = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        scale = (part.abs().amax(1) * 2 if is_even else most - least) / greatest
        scales.append(scale.to(dtype))
        zeros.append(torch.full_like(least, 2 ** (bits - 1)) if is_even else (-least / scale).round().clamp(1, greatest))
    scale, zero = torch.stack(scales, 1), torch.stack(zeros, 1).long()
    numbers = (weight / scale[:, groups].float() + zero[:, groups]).round().clamp(0, greatest).long()
    return _Grouped(numbers, scale, zero, groups)


def _pack(numbers: torch.Tensor, bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """numbers [n, m] -> int32 words [n, m * bits / 32]. order[i]: which of the numbers of a word is at its place i."""
    per_word = 32 // bits
    rows = []
    for row in numbers.tolist():
        row += [0] * (-len(row) % per_word)
        words = []
        for first in range(0, len(row), per_word):
            word = sum(row[first + (order[place] if order else place)] << bits * place for place in range(per_word))
            words.append(word - (1 << 32) if word >= 1 << 31 else word)
        rows.append(words)
    return torch.tensor(rows, dtype=torch.int32)


def _packed(bits: int, *, is_even: bool, is_shuffled: bool = False) -> Callable[[torch.Tensor], Written]:
    def write(weight: torch.Tensor) -> Written:
        grouped = _in_groups(weight, bits, is_even=is_even, dtype=torch.bfloat16, is_shuffled=is_shuffled)
        tensors = {
            "weight_packed": _pack(grouped.numbers, bits),
            "weight_scale": grouped.scales,
            "weight_shape": torch.tensor(weight.shape),
        }
        if not is_even:
            tensors["weight_zero_point"] = _pack(grouped.zeros.T, bits).T
        if is_shuffled:
            tensors["weight_g_idx"] = grouped.groups.int()
        return Written(tensors, grouped.floats)

    return write


def _awq(weight: torch.Tensor) -> Written:
    grouped = _in_groups(weight, 4, is_even=False)
    numbers, zeros = (_pack(each.T, 4, _AWQ_ORDER) for each in (grouped.numbers, grouped.zeros))
    return Written({"qweight": numbers, "qzeros": zeros, "scales": grouped.scales.T}, grouped.floats)


def _gptq(bits: int, less: int, *, is_even: bool, is_shuffled: bool = False) -> Callable[[torch.Tensor], Written]:
    def write(weight: torch.Tensor) -> Written:
        grouped = _in_groups(weight, bits, is_even=is_even, is_shuffled=is_shuffled)
        tensors = {
            "qweight": _pack(grouped.numbers, bits).T,
            "qzeros": _pack(grouped.zeros.T - less, bits),
            "scales": grouped.scales.T,
            "g_idx": grouped.groups.int(),
        }
        return Written(tensors, grouped.floats)

    return write


_FLOAT = {"num_bits": 8, "type": "float", "symmetric": True}
_INT = {"num_bits": 8, "type": "int", "symmetric": True}
_BY_TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
_GROUPS = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": GROUP}
_BLOCKS = [BLOCK, BLOCK]
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}
FORMATS: Mapping[str, Format] = {
    "fp8 rows": Format(compressed("float-quantized", {**_FLOAT, "strategy": "channel"}, _BY_TOKEN), _rows_of_float8),
    "fp8 tensor": Format(compressed("naive-quantized", {**_FLOAT, "strategy": "tensor"}, _BY_TOKEN), _whole_float8),
    "fp8 blocks": Format(
        compressed("float-quantized", {**_FLOAT, "strategy": "block", "block_structure": _BLOCKS}, _BY_TOKEN),
        _blocks_of_float8("weight_scale"),
    ),
    "deepseek": Format(
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": _BLOCKS},
        _blocks_of_float8("weight_scale_inv"),
    ),
    "autofp8": Format({"quant_method": "fp8", "activation_scheme": "static"}, _scalar_float8),
    "int8 rows": Format(compressed("int-quantized", {**_INT, "strategy": "channel"}, _BY_TOKEN), _rows_of_int8(torch.bfloat16)),
    "int8 rows of float32": Format(compressed("int-quantized", {**_INT, "strategy": "channel"}), _rows_of_int8(torch.float32)),
    "int8 uneven": Format(compressed("int-quantized", {**_INT, "symmetric": False, "strategy": "channel"}), _uneven_int8),
    "packed": Format(compressed("pack-quantized", {**_GROUPS, "symmetric": True}), _packed(4, is_even=True)),
    "packed uneven": Format(compressed("pack-quantized", {**_GROUPS, "symmetric": False}), _packed(4, is_even=False)),
    "packed 8": Format(compressed("pack-quantized", {**_GROUPS, "num_bits": 8}), _packed(8, is_even=True)),
    "packed shuffled": Format(
        compressed("pack-quantized", {**_GROUPS, "actorder": "group"}), _packed(4, is_even=True, is_shuffled=True)
    ),
    "awq": Format({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}, _awq),
    "gptq": Format(_GPTQ, _gptq(4, 1, is_even=True)),
    "gptq uneven": Format({**_GPTQ, "sym": False}, _gptq(4, 1, is_even=False)),
    "gptq 8": Format({**_GPTQ, "bits": 8}, _gptq(8, 1, is_even=True)),
    "gptq v2 shuffled": Format(
        {**_GPTQ, "checkpoint_format": "gptq_v2", "desc_act": True}, _gptq(4, 0, is_even=True, is_shuffled=True)
    ),
}
