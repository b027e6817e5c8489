"""The config of Gemma 3 text models, read from `config.json`. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.model_store.config_keys import ConfigKeys, ModelConfigError
from gpu_workers.model_store.model_config import ModelConfig, read_sizes
from gpu_workers.model_store.rope import Rope, rope_of

_DEFAULTS = {  # a config.json names what differs from these
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0
_SLIDING, _FULL = "sliding_attention", "full_attention"
_PATTERN = 6  # every sixth layer is global


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(ModelConfig):
    """Global layers and layers that see `window` tokens, each kind with a rope of its own."""

    window: int
    is_sliding: tuple[bool, ...]  # by layer
    query_scalar: float  # scores are divided by its square root
    rope: Rope
    sliding_rope: Rope

    @property
    def attention_window(self) -> int | None:
        """The window of the sliding layers, if there are any and it is shorter than the longest sequence; else None."""
        return self.window if any(self.is_sliding) and self.window < self.max_position else None

    def small_layer_parameters(self, n_heads: int, n_kv_heads: int, is_first_rank: bool) -> int:
        """The parameters of a layer's four norms, and of those of queries and keys."""
        return 4 * self.hidden + 2 * self.head_dim


def read_gemma3(keys: ConfigKeys) -> Gemma3Config:
    """Models of model_type gemma3_text. Raises ModelConfigError naming the key."""
    keys = keys.with_defaults(**_DEFAULTS)
    activation = keys.text("hidden_activation")
    if activation != "gelu_pytorch_tanh":
        raise ModelConfigError(f"hidden_activation: expected gelu_pytorch_tanh, got {activation!r}")
    keys.refuse("attention_bias", "attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention")
    sizes = read_sizes(keys)
    rope, sliding_rope = _ropes(keys)
    return Gemma3Config(
        **vars(sizes),
        window=keys.positive("sliding_window"),
        is_sliding=_sliding_layers(keys, sizes.n_layers),
        query_scalar=keys.number("query_pre_attn_scalar"),
        rope=rope,
        sliding_rope=sliding_rope,
    )


def _sliding_layers(keys: ConfigKeys, n_layers: int) -> tuple[bool, ...]:
    types = keys.strings("layer_types")
    if not types:
        pattern = keys.positive("sliding_window_pattern", _PATTERN)
        return tuple((index + 1) % pattern != 0 for index in range(n_layers))
    if len(types) != n_layers or not set(types) <= {_SLIDING, _FULL}:
        raise ModelConfigError(f"layer_types: expected {n_layers} of {_SLIDING} or {_FULL}, got {list(types)}")
    return tuple(one == _SLIDING for one in types)


def _ropes(keys: ConfigKeys) -> tuple[Rope, Rope]:
    """The ropes of global and of sliding layers, from `rope_parameters` or the older flat keys."""
    by_kind = keys.section("rope_parameters")
    theta = keys.number("rope_theta", _THETA)
    if not by_kind:
        return rope_of(keys.section("rope_scaling"), theta), Rope(keys.number("rope_local_base_freq", _LOCAL_THETA))
    return rope_of(by_kind.section(_FULL), theta), rope_of(by_kind.section(_SLIDING), _LOCAL_THETA)
