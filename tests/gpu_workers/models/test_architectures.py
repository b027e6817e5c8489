"""config.json: what is read, and how what cannot be run is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_workers.model_store.config_keys import ModelConfigError
from gpu_workers.model_store.rope import Rope
from gpu_workers.models.architectures import parse_model_config, read_model_config
from gpu_workers.models.llama.config import LlamaConfig

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def parse(raw: dict[str, Any]) -> LlamaConfig:
    config = parse_model_config(raw)
    assert isinstance(config, LlamaConfig)
    return config


def test_defaults_and_families() -> None:
    config = parse(LLAMA)
    assert (config.head_dim, config.rope) == (16, Rope(10_000.0, "default"))
    assert (config.qk_norm, config.qkv_bias, config.output_bias) == (False, False, False)
    qwen2 = parse(LLAMA | {"model_type": "qwen2"})
    assert (qwen2.qkv_bias, qwen2.output_bias) == (True, False)
    assert parse(LLAMA | {"model_type": "qwen3", "head_dim": 32}).qk_norm


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 8192}},
        {"rope_parameters": LLAMA3 | {"rope_theta": 5e5, "original_max_position_embeddings": 8192}},
    ],
)
def test_old_and_new_rope_keys(keys: dict[str, Any]) -> None:
    config = parse(LLAMA | keys)
    assert config.rope == Rope(5e5, "llama3", 8.0, 1.0, 4.0, 8192)


@pytest.mark.parametrize(
    ("keys", "positions"),
    [
        ({"sliding_window": None}, 4096),
        ({"sliding_window": 1024}, 1024),
        ({"sliding_window": 1024, "use_sliding_window": False}, 4096),
        ({"sliding_window": 1024, "layer_types": ["full_attention"] * 2}, 4096),
    ],
)
def test_a_sliding_window_limits_the_length(keys: dict[str, Any], positions: int) -> None:
    assert parse(LLAMA | keys).max_position == positions


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"model_type": "mamba"}, "model_type: expected one of"),
        ({"hidden_size": None}, "hidden_size: expected a positive integer"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: expected a positive integer, got '2'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: expected a divisor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type: expected one of"),
        ({"rope_scaling": {"type": "linear"}}, "factor: expected a positive number"),
        ({"hidden_act": "gelu"}, "hidden_act: expected silu"),
        ({"mlp_bias": True}, "mlp_bias"),
        (
            {"quantization_config": {"quant_method": "hqq"}},
            "quantization_config.quant_method: expected one of",
        ),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: expected true or false"),
    ],
)
def test_refusals_name_the_key(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelConfigError, match="^" + text.replace("(", r"\(") if ":" in text else text):
        parse(LLAMA | keys)


def test_a_file_that_is_no_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_model_config(tmp_path) == parse(LLAMA)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelConfigError, match="expected a JSON object, got list"):
        read_model_config(tmp_path)
