"""The config of models of the Llama line, read from `config.json`. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpu_workers.model_store.config_keys import ConfigKeys, ModelConfigError
from gpu_workers.model_store.model_config import ModelConfig, read_sizes
from gpu_workers.model_store.rope import Rope, read_rope

_PLAIN_ROPE = Rope()


@dataclass(frozen=True)
class TensorNames:
    """Which tensor of a layer holds each projection. Where a name is repeated, one tensor holds these projections,
    concatenated by rows in this order."""

    qkv: tuple[str, str, str] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up: tuple[str, str] = ("mlp.gate_proj", "mlp.up_proj")


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """A Llama layer: norm, attention, norm, SiLU-gated feed-forward. `max_position` is at most the sliding window, where there
    is one: within its window sliding attention is plain attention."""

    rope: Rope = _PLAIN_ROPE
    qkv_bias: bool = False
    output_bias: bool = False  # of the attention's output projection
    qk_norm: bool = False  # RMS norm of each head of queries and keys
    names: TensorNames = TensorNames()

    def small_layer_parameters(self, n_heads: int, n_kv_heads: int, is_first_rank: bool) -> int:
        """The parameters of a layer's two norms, its biases on this rank, and the norms of queries and keys if there are
        any."""
        biases = (n_heads + 2 * n_kv_heads) * self.head_dim * self.qkv_bias + self.hidden * (self.output_bias and is_first_rank)
        return 2 * self.hidden + biases + 2 * self.head_dim * self.qk_norm


def read_llama(keys: ConfigKeys) -> LlamaConfig:
    """Llama 2 and 3, Mistral, SmolLM2."""
    has_bias = keys.flag("attention_bias", False)
    return replace(read_plain(keys), qkv_bias=has_bias, output_bias=has_bias)


def read_qwen2(keys: ConfigKeys) -> LlamaConfig:
    """Qwen2: queries, keys and values always have biases, although config.json does not say so."""
    return replace(read_plain(keys), qkv_bias=True)


def read_qwen3(keys: ConfigKeys) -> LlamaConfig:
    """Qwen3: each head of queries and keys is normalised."""
    return replace(read_llama(keys), qk_norm=True)


def read_plain(keys: ConfigKeys) -> LlamaConfig:
    """A layer without biases and without norms of queries and keys. Raises ModelConfigError naming the key."""
    activation = keys.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelConfigError(f"hidden_act: expected silu, got {activation!r}")
    keys.refuse("mlp_bias")
    sizes = read_sizes(keys)
    config = LlamaConfig(**vars(sizes), rope=read_rope(keys))
    return replace(config, max_position=min(config.max_position, _window(keys) or config.max_position))


def _window(keys: ConfigKeys) -> int | None:
    """Tokens of the sliding window; None where no layer has one."""
    layer_types = keys.strings("layer_types")
    is_used = keys.value("use_sliding_window", True) and (not layer_types or "sliding_attention" in layer_types)
    return keys.positive("sliding_window") if keys.value("sliding_window") and is_used else None
