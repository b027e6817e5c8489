"""How much of a quantised checkpoint is floats, counted from its configuration alone. No torch here."""

from __future__ import annotations

from functools import lru_cache

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.quantized.form import QuantizedWeights

_PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_FEED_FORWARD = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def floats_share(config: ModelConfig) -> float:
    """The part of the weights of all layers, 0 .. 1, that the file leaves in floats; 0 if it is not quantised."""
    if config.quantized is None:
        return 0.0
    queries, keys = config.n_heads * config.head_dim * config.hidden, config.n_kv_heads * config.head_dim * config.hidden
    sizes = (queries, keys, keys, queries, *(config.ffn * config.hidden,) * len(_FEED_FORWARD))
    return _share(config.quantized, config.n_layers, sizes)


@lru_cache(maxsize=16)
def _share(form: QuantizedWeights, n_layers: int, sizes: tuple[int, ...]) -> float:
    names = (*_PROJECTIONS, *_FEED_FORWARD)
    left = sum(
        size
        for index in range(n_layers)
        for name, size in zip(names, sizes, strict=True)
        if form.leaves_floats(f"model.layers.{index}.{name}")
    )
    return left / (n_layers * sum(sizes))
