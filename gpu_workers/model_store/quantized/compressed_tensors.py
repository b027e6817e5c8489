"""Reads the `quantization_config` of checkpoints that the library compressed-tensors has written. No torch here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_workers.model_store.config_keys import ConfigKeys, ModelConfigError
from gpu_workers.model_store.quantized.form import Layout, Numbers, QuantizedWeights

_LAYOUTS = {
    "float-quantized": Layout.SCALED,
    "int-quantized": Layout.SCALED,
    "naive-quantized": Layout.SCALED,
    "pack-quantized": Layout.PACKED,
}
_NUMBERS = {("float", 8): Numbers.FP8, ("int", 8): Numbers.INT8, ("int", 4): Numbers.INT4}
_STRATEGIES = ("tensor", "channel", "group", "block")
_ALL = "Linear"  # the target that means all linear layers


@dataclass(frozen=True)
class _GroupForm:
    """What one of `config_groups` says of the layers that it names."""

    layout: Layout
    numbers: Numbers
    block: tuple[int, int] | None
    group: int
    has_zeros: bool
    in_order: bool
    rounds_inputs: bool


def read_compressed_tensors(keys: ConfigKeys) -> QuantizedWeights:
    """keys: of the section. Raises: ModelConfigError naming the key, what was expected and what came."""
    sparsity = keys.section("sparsity_config").value("format", "dense")
    if sparsity != "dense":
        raise ModelConfigError(f"sparsity_config.format: expected dense, got {sparsity!r}")
    if keys.section("transform_config"):
        raise ModelConfigError("transform_config: expected none, got transforms of the inputs")
    raw = keys.value("config_groups")
    if not isinstance(raw, Mapping) or not raw:
        raise ModelConfigError(f"config_groups: expected an object with a group or more, got {raw!r}")
    groups, targets = [], []
    for name in raw:
        section = keys.section("config_groups").section(name)
        try:
            groups.append(_read_group(section, section.text("format", keys.text("format", "?"))))
        except ModelConfigError as error:
            raise ModelConfigError(f"config_groups.{name}.{error}") from None
        targets += section.strings("targets")
    if len(set(groups)) > 1:
        raise ModelConfigError(f"config_groups: expected one form for all of them, got {len(set(groups))} forms")
    first = groups[0]
    return QuantizedWeights(
        "compressed-tensors",
        first.layout,
        first.numbers,
        block=first.block,
        group=first.group,
        has_zeros=first.has_zeros,
        in_order=first.in_order,
        rounds_inputs=first.rounds_inputs,
        ignored=keys.strings("ignore"),
        targets=() if any(_is_class(target) for target in targets) else tuple(targets),
        passed_over=("kv_cache_scheme",) if keys.value("kv_cache_scheme") else (),
    )


def _is_class(target: str) -> bool:
    """True for the name of a class, as "Linear"; our decoders have no linear layers of different classes."""
    return target == _ALL or re.fullmatch(r"[A-Z]\w*", target) is not None


def _read_group(section: ConfigKeys, format_name: str) -> _GroupForm:
    if format_name not in _LAYOUTS:
        raise ModelConfigError(f"format: expected one of {', '.join(_LAYOUTS)}, got {format_name!r}")
    if section.value("output_activations"):
        raise ModelConfigError("output_activations: expected none, got some")
    try:
        return _read_weights(section.section("weights"), format_name, bool(section.value("input_activations")))
    except ModelConfigError as error:
        raise ModelConfigError(f"weights.{error}") from None


def _read_weights(keys: ConfigKeys, format_name: str, rounds_inputs: bool) -> _GroupForm:
    layout, kind, bits = _LAYOUTS[format_name], keys.text("type", "int"), keys.positive("num_bits", 8)
    numbers = _NUMBERS.get((kind, bits))
    is_fitting = numbers in (Numbers.INT4, Numbers.INT8) if layout is Layout.PACKED else numbers is not Numbers.INT4
    if numbers is None or not is_fitting:
        expected = "int of 4 or 8 bits" if layout is Layout.PACKED else "float or int of 8 bits"
        raise ModelConfigError(f"type and num_bits: expected {expected} with {format_name}, got {kind} of {bits}")
    size = keys.value("group_size")
    strategy = keys.text("strategy", "tensor" if size is None else "group")
    if strategy not in _STRATEGIES:
        raise ModelConfigError(f"strategy: expected one of {', '.join(_STRATEGIES)}, got {strategy!r}")
    return _GroupForm(
        layout,
        numbers,
        block=read_block(keys, "block_structure") if strategy == "block" else None,
        group=keys.positive("group_size") if strategy == "group" and size != -1 else 0,
        has_zeros=not keys.flag("symmetric", True),
        in_order=keys.value("actorder") in (None, "weight", "static"),  # with these the groups are of neighbours again
        rounds_inputs=rounds_inputs,
    )


def read_block(keys: ConfigKeys, key: str) -> tuple[int, int]:
    """Outputs and inputs of a block under `key`. Raises: ModelConfigError when it is no pair of positive integers."""
    sides = keys.value(key)
    is_pair = isinstance(sides, list) and len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides)
    if not is_pair:
        raise ModelConfigError(f"{key}: expected two positive integers, got {sides!r}")
    return sides[0], sides[1]
