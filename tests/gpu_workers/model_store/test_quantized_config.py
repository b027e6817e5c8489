"""Which forms of weights a `quantization_config` can ask for, as the files on the hub have it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_workers.model_store.config_keys import ModelConfigError
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.quantized.form import Layout, Numbers, QuantizedWeights
from gpu_workers.models.architectures import parse_model_config
from gpu_workers.runner.floats_share import floats_share
from gpu_workers.runner.memory_estimate import cpu_weight_bytes
from tests.support.quantized.writer import FORMATS
from tests.support.workers.tiny_model import TINY

QWEN3_FP8 = {
    "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm"],
}  # fmt: skip
FP8_DYNAMIC = {
    "config_groups": {
        "group_0": {
            "input_activations": {
                "actorder": None, "block_structure": None, "dynamic": True, "group_size": None, "num_bits": 8, "observer": None,
                "strategy": "token", "symmetric": True, "type": "float",
            },
            "output_activations": None,
            "targets": ["Linear"],
            "weights": {
                "actorder": None, "block_structure": None, "dynamic": False, "group_size": None, "num_bits": 8,
                "observer": "minmax", "strategy": "channel", "symmetric": True, "type": "float",
            },
        }
    },
    "format": "float-quantized", "ignore": ["lm_head"], "kv_cache_scheme": None, "quant_method": "compressed-tensors",
    "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {}, "version": "0.10.2",
}  # fmt: skip
W4A16 = {
    "config_groups": {
        "group_0": {
            "input_activations": None, "output_activations": None, "targets": ["Linear"],
            "weights": {"actorder": "weight", "group_size": 128, "num_bits": 4, "strategy": "group", "symmetric": True,
                        "type": "int"},
        }
    },
    "format": "pack-quantized", "ignore": ["lm_head"], "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    "quant_method": "compressed-tensors",
}  # fmt: skip
AWQ = {
    "bits": 4,
    "group_size": 128,
    "modules_to_not_convert": None,
    "quant_method": "awq",
    "version": "gemm",
    "zero_point": True,
}
GPTQ = {"bits": 4, "damp_percent": 0.1, "desc_act": False, "group_size": 128, "quant_method": "gptq", "sym": True}


def config_of(section: Any, key: str = "quantization_config") -> ModelConfig:
    return parse_model_config({**TINY, key: section})


@pytest.mark.parametrize(
    ("section", "expected", "label"),
    [
        (
            QWEN3_FP8,
            QuantizedWeights(
                "fp8", Layout.SCALED, Numbers.FP8, block=(128, 128), rounds_inputs=True,
                ignored=("lm_head", "model.layers.0.input_layernorm"),
            ),
            "fp8 in blocks of 128 x 128 (fp8)",
        ),
        (
            FP8_DYNAMIC,
            QuantizedWeights("compressed-tensors", Layout.SCALED, Numbers.FP8, rounds_inputs=True, ignored=("lm_head",)),
            "fp8 (compressed-tensors)",
        ),
        (
            W4A16,
            QuantizedWeights(
                "compressed-tensors", Layout.PACKED, Numbers.INT4, group=128, ignored=("lm_head",),
                passed_over=("kv_cache_scheme",),
            ),
            "int4 in groups of 128 (compressed-tensors)",
        ),
        (AWQ, QuantizedWeights("awq", Layout.AWQ, Numbers.INT4, group=128, has_zeros=True), "int4 in groups of 128 (awq)"),
        (
            {**GPTQ, "group_size": -1},
            QuantizedWeights("gptq", Layout.GPTQ, Numbers.INT4, zeros_are_less=True),
            "int4 (gptq)",
        ),
    ],
)  # fmt: skip
def test_forms_of_the_hub(section: dict[str, Any], expected: QuantizedWeights, label: str) -> None:
    found = config_of(section).quantized
    assert found == expected
    assert found is not None
    assert found.label == label


def test_the_older_name_of_the_section_and_plain_floats() -> None:
    section = {key: value for key, value in FP8_DYNAMIC.items() if key != "quant_method"}
    assert config_of(section, "compression_config").quantized == config_of(FP8_DYNAMIC).quantized
    assert config_of(None).quantized is None


def changed(path: str, value: Any, section: dict[str, Any] = FP8_DYNAMIC) -> dict[str, Any]:
    """A copy of the section with one value changed."""
    first, _, rest = path.partition("/")
    return {**section, first: changed(rest, value, section[first]) if rest else value}


GROUP = "config_groups/group_0"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"quant_method": "bitsandbytes"}, r"quant_method: expected one of compressed-tensors, fp8, awq, gptq, got 'bitsandby"),
        ({"bits": 4}, r"quantization_config\.quant_method: expected one of .*, got '\?'"),
        (
            changed("format", "nvfp4-pack-quantized"),
            r"config_groups\.group_0\.format: expected one of float-.*'nvfp4",
        ),
        (
            changed(f"{GROUP}/weights/num_bits", 4),
            r"weights\.type and num_bits: .* 8 bits with float-qu.*, got float of 4",
        ),
        (changed(f"{GROUP}/weights/strategy", "tensor_group"), r"weights\.strategy: expected one of .*, got 'tensor_group'"),
        (changed(f"{GROUP}/weights/strategy", "block"), r"weights\.block_structure: expected two positive integers, got None"),
        (changed(f"{GROUP}/output_activations", {"num_bits": 8}), r"group_0\.output_activations: expected none, got some"),
        (
            changed("sparsity_config", {"format": "sparse-24-bitmask"}),
            r"sparsity_config\.format: expected dense, got 'sparse",
        ),
        (changed("transform_config", {"config_groups": {"u": {}}}), r"transform_config: expected none, got transforms"),
        (changed("config_groups", {}), r"config_groups: expected an object with a group or more, got {}"),
        (
            {
                **FP8_DYNAMIC,
                "config_groups": {
                    **FP8_DYNAMIC["config_groups"],
                    "group_1": {"format": "int-quantized", "weights": {"strategy": "channel"}},
                },
            },
            r"config_groups: expected one form for all of them, got 2 forms",
        ),
        ({**QWEN3_FP8, "fmt": "e5m2"}, r"quantization_config\.fmt: expected e4m3, got 'e5m2'"),
        ({**QWEN3_FP8, "weight_block_size": [128]}, r"weight_block_size: expected two positive integers, got \[128\]"),
        ({**AWQ, "version": "gemv"}, r"version: expected gemm, got 'gemv'"),
        ({**AWQ, "bits": 8}, r"bits: expected 4, got 8"),
        ({**GPTQ, "bits": 3}, r"bits: expected 4 or 8, got 3"),
        ({**GPTQ, "checkpoint_format": "marlin"}, r"checkpoint_format: expected one of gptq, gptq_v2, got 'marlin'"),
        ({**GPTQ, "dynamic": {"-:.*down.*": {}}}, r"dynamic: expected one form for all layers, got rules for some"),
    ],
)
def test_what_is_not_supported_is_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        config_of(section)


def test_layers_that_stay_floats() -> None:
    form = config_of(FP8_DYNAMIC).quantized
    assert form is not None
    form = replace(form, ignored=("lm_head", "re:.*down_proj", "model.layers.1.self_attn"))
    names = ("lm_head", "model.layers.0.mlp.down_proj", "model.layers.1.self_attn.q_proj", "model.layers.11.self_attn.q_proj")
    assert [form.leaves_floats(name) for name in names] == [True, True, True, False]
    only = replace(form, ignored=(), targets=("re:.*mlp.*",))
    assert [only.leaves_floats(name) for name in names] == [True, False, True, True]


def test_the_estimate_counts_what_stays_floats() -> None:
    """Half of the layers: their part has four bytes for a number, in place of a little more than one."""
    config = config_of(FORMATS["int8 rows"].config)
    assert config.quantized is not None
    half = replace(config, quantized=replace(config.quantized, ignored=("model.layers.0",)))
    assert (floats_share(config), floats_share(half)) == (0, 0.5)
    small, more = (cpu_weight_bytes(one, 1, "float32", "exact") for one in (config, half))
    floats = cpu_weight_bytes(config, 1, "float32")
    assert more - small == pytest.approx((floats - small) / 2, rel=0.2)
    assert small < more < floats
