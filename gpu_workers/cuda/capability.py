"""Which attention a machine can compute. Imports no Triton, so every machine can ask."""

from __future__ import annotations

from importlib.util import find_spec

from gpu_workers.model_store.model_config import ModelConfig

HEAD_DIMS = (16, 32, 64, 128, 256)


def why_not_triton(config: ModelConfig) -> str | None:
    """Why the Triton kernels cannot compute the attention of this model; None if they can."""
    if config.head_dim not in HEAD_DIMS:
        return f"head_dim: the Triton kernels expect one of {HEAD_DIMS}, got {config.head_dim}"
    if config.attention_window is not None:
        return f"sliding_window: the Triton kernels have none, got {config.attention_window}"
    return None


def is_flash_installed() -> bool:
    """True if the package of FlashAttention 3 is there; see `cuda.flash_attention`. Imports nothing."""
    return find_spec("fa3_fwd") is not None
