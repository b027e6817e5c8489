"""Reads `quantization_config`: of compressed-tensors, of 8-bit floats as DeepSeek and Qwen write them, of AWQ and of GPTQ.
No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpu_workers.model_store.config_keys import ConfigKeys, ModelConfigError
from gpu_workers.model_store.quantized.compressed_tensors import read_block, read_compressed_tensors
from gpu_workers.model_store.quantized.form import Layout, Numbers, QuantizedWeights

_SECTIONS = ("quantization_config", "compression_config")  # the second one is the older name
_GPTQ_FORMATS = ("gptq", "gptq_v2")


def read_quantization(keys: ConfigKeys) -> QuantizedWeights | None:
    """The form of the weights; None where they are plain floats. keys: of the whole config.json.

    Raises: ModelConfigError naming the key, what was expected and what came, for a form that is not supported."""
    section = next((name for name in _SECTIONS if keys.value(name)), None)
    if section is None:
        return None
    own = keys.section(section)
    method = own.value("quant_method", "compressed-tensors" if own.value("config_groups") else "?")
    if method not in _READERS:
        raise ModelConfigError(f"{section}.quant_method: expected one of {', '.join(_READERS)}, got {method!r}")
    try:
        return _READERS[method](own)
    except ModelConfigError as error:
        raise ModelConfigError(f"{section}.{error}") from None


def _read_fp8(keys: ConfigKeys) -> QuantizedWeights:
    """Weights of 8-bit floats, with a scale for each weight, or for each block of it."""
    kind = keys.text("fmt", "e4m3")
    if kind not in ("e4m3", "float8_e4m3fn"):
        raise ModelConfigError(f"fmt: expected e4m3, got {kind!r}")
    block = read_block(keys, "weight_block_size") if keys.value("weight_block_size") else None
    ignored = (*keys.strings("modules_to_not_convert"), *keys.strings("ignored_layers"))
    passed_over = ("kv_cache_scheme",) if keys.value("kv_cache_scheme") else ()
    return QuantizedWeights(
        "fp8", Layout.SCALED, Numbers.FP8, block=block, rounds_inputs=True, ignored=ignored, passed_over=passed_over
    )


def _read_awq(keys: ConfigKeys) -> QuantizedWeights:
    version = keys.text("version", "gemm").lower()
    if version != "gemm":
        raise ModelConfigError(f"version: expected gemm, got {version!r}")
    if keys.positive("bits", 4) != 4:
        raise ModelConfigError(f"bits: expected 4, got {keys.value('bits')}")
    ignored = keys.strings("modules_to_not_convert")
    return QuantizedWeights(
        "awq", Layout.AWQ, Numbers.INT4, group=_group_size(keys), has_zeros=keys.flag("zero_point", True), ignored=ignored
    )


def _read_gptq(keys: ConfigKeys) -> QuantizedWeights:
    form, bits = keys.text("checkpoint_format", "gptq"), keys.positive("bits")
    if form not in _GPTQ_FORMATS:
        raise ModelConfigError(f"checkpoint_format: expected one of {', '.join(_GPTQ_FORMATS)}, got {form!r}")
    if bits not in (4, 8):
        raise ModelConfigError(f"bits: expected 4 or 8, got {bits}")
    if keys.value("dynamic"):
        raise ModelConfigError("dynamic: expected one form for all layers, got rules for some")
    return QuantizedWeights(
        "gptq",
        Layout.GPTQ,
        Numbers.INT4 if bits == 4 else Numbers.INT8,
        group=_group_size(keys),
        has_zeros=not keys.flag("sym", True),
        in_order=not keys.flag("desc_act", False),
        zeros_are_less=form == "gptq",
        ignored=keys.strings("modules_to_not_convert"),
    )


def _group_size(keys: ConfigKeys) -> int:
    """Inputs of a group; 0 for -1, which means all inputs."""
    return 0 if keys.value("group_size") == -1 else keys.positive("group_size", 128)


_READERS: Mapping[str, Callable[[ConfigKeys], QuantizedWeights]] = {
    "compressed-tensors": read_compressed_tensors,
    "fp8": _read_fp8,
    "awq": _read_awq,
    "gptq": _read_gptq,
}
