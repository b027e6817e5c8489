"""What a rank must know of a model to run it, read from `config.json` and checked key by key. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPPORTED_MODEL_TYPES = ("hash_chain", "llama", "mistral", "qwen2", "qwen3")
SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")


class ModelConfigError(ValueError):
    """A key of config.json is missing, has a wrong type, or asks for something this server does not run."""


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched. `kind` is one of SUPPORTED_ROPE_TYPES; the other fields are used by it only."""

    kind: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True)
class ModelConfig:
    """A dense decoder with rotary positions, grouped heads and a gated feed-forward. Counts are of the whole model."""

    model_type: str
    n_layers: int
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    max_position: int  # tokens of one sequence; cut to the sliding window where there is one, so that it never acts
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling = RopeScaling()
    rms_eps: float = 1e-6
    tied_embeddings: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False  # of the attention's output projection
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    dtype: str = "bfloat16"  # what the files say: float32, float16 or bfloat16

    @property
    def layer_parameters(self) -> int:
        """Weights that every token of a step is multiplied with: all but the embedding and the head."""
        attention = self.hidden * self.head_dim * 2 * (self.n_heads + self.n_kv_heads)
        return self.n_layers * (attention + 3 * self.hidden * self.ffn)


def read_model_config(folder: Path) -> ModelConfig:
    """Config of the model in `folder`; `generation_config.json` beside it has the last word on end tokens.

    Raises ModelConfigError naming the file and the key."""
    path = folder / "config.json"
    config = parse_model_config(_read_object(path))
    generation = folder / "generation_config.json"
    if not generation.is_file():
        return config
    eos_ids = _token_ids(_read_object(generation), "eos_token_id")
    return config if not eos_ids else ModelConfig(**{**config.__dict__, "eos_ids": eos_ids})


def parse_model_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the keys of a Hugging Face config.json (both the older flat rope keys and `rope_parameters`)."""
    model_type = _typed(raw, "model_type", str)
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise ModelConfigError(f"model_type: expected one of {', '.join(SUPPORTED_MODEL_TYPES)}, got {model_type!r}")
    _refuse_unknown_parts(raw)
    hidden, n_heads = _positive(raw, "hidden_size"), _positive(raw, "num_attention_heads")
    n_kv_heads = _positive(raw, "num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise ModelConfigError(f"num_key_value_heads: expected a divisor of {n_heads} heads, got {n_kv_heads}")
    head_dim = _positive(raw, "head_dim", hidden // n_heads)
    if head_dim % 2:
        raise ModelConfigError(f"head_dim: expected an even number, got {head_dim}")
    theta, scaling = _rope(raw)
    bias = model_type != "qwen2" and _flag(raw, "attention_bias", False)
    return ModelConfig(
        model_type=model_type,
        n_layers=_positive(raw, "num_hidden_layers"),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        ffn=_positive(raw, "intermediate_size"),
        vocabulary=_positive(raw, "vocab_size"),
        max_position=_usable_positions(raw),
        rope_theta=theta,
        rope_scaling=scaling,
        rms_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tied_embeddings=_flag(raw, "tie_word_embeddings", False),
        qk_norm=model_type == "qwen3",
        qkv_bias=model_type == "qwen2" or bias,
        output_bias=bias,
        bos_id=next(iter(_token_ids(raw, "bos_token_id")), None),
        eos_ids=_token_ids(raw, "eos_token_id"),
        dtype=str(raw.get("dtype") or raw.get("torch_dtype") or "bfloat16").removeprefix("torch."),
    )


def _refuse_unknown_parts(raw: Mapping[str, Any]) -> None:
    activation = raw.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelConfigError(f"hidden_act: expected silu, got {activation!r}")
    if raw.get("mlp_bias"):
        raise ModelConfigError("mlp_bias: expected false, got true")
    if raw.get("quantization_config"):
        method = dict(raw["quantization_config"]).get("quant_method", "?")
        raise ModelConfigError(f"quantization_config: expected plain float weights, got quant_method {method!r}")


def _usable_positions(raw: Mapping[str, Any]) -> int:
    """Within its window, sliding attention is plain attention; so a model that slides is served up to its window."""
    positions = _positive(raw, "max_position_embeddings", 2048)
    window = raw.get("sliding_window")
    layer_types = raw.get("layer_types")
    active = raw.get("use_sliding_window", True)
    if layer_types is not None:
        active = active and "sliding_attention" in layer_types
    if not window or not active:
        return positions
    return min(positions, _positive(raw, "sliding_window"))


def _rope(raw: Mapping[str, Any]) -> tuple[float, RopeScaling]:
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise ModelConfigError(f"rope_parameters: expected an object, got {type(parameters).__name__}")
    theta = float(parameters.get("rope_theta", raw.get("rope_theta", 10_000.0)))
    kind = parameters.get("rope_type", parameters.get("type", "default")) or "default"
    if kind not in SUPPORTED_ROPE_TYPES:
        raise ModelConfigError(f"rope_type: expected one of {', '.join(SUPPORTED_ROPE_TYPES)}, got {kind!r}")
    if raw.get("partial_rotary_factor", parameters.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelConfigError("partial_rotary_factor: expected 1.0 (all of a head rotates)")
    if kind == "default":
        return theta, RopeScaling()
    factor = _number(parameters, "factor")
    if kind == "linear":
        return theta, RopeScaling("linear", factor)
    original = parameters.get("original_max_position_embeddings", raw.get("original_max_position_embeddings", 8192))
    low, high = _number(parameters, "low_freq_factor"), _number(parameters, "high_freq_factor")
    return theta, RopeScaling("llama3", factor, low, high, int(original))


def _read_object(path: Path) -> Mapping[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelConfigError(f"{path}: expected a JSON object, got {error}") from error
    if not isinstance(raw, dict):
        raise ModelConfigError(f"{path}: expected a JSON object, got {type(raw).__name__}")
    return raw


def _typed(raw: Mapping[str, Any], key: str, kind: type) -> Any:
    value = raw.get(key)
    if not isinstance(value, kind):
        raise ModelConfigError(f"{key}: expected {kind.__name__}, got {value!r}")
    return value


def _positive(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelConfigError(f"{key}: expected a positive integer, got {value!r}")
    return value


def _number(raw: Mapping[str, Any], key: str) -> float:
    value = raw.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise ModelConfigError(f"{key}: expected a positive number, got {value!r}")
    return float(value)


def _flag(raw: Mapping[str, Any], key: str, default: bool) -> bool:
    value = raw.get(key, default)
    if not isinstance(value, bool):
        raise ModelConfigError(f"{key}: expected true or false, got {value!r}")
    return value


def _token_ids(raw: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = raw.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        raise ModelConfigError(f"{key}: expected a token id or a list of them, got {value!r}")
    return tuple(ids)
