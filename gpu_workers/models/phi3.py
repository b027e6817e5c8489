"""Phi-3 and Phi-4: Llama's layer, in checkpoints that keep queries, keys and values in one tensor, gate and up in another.
No torch here."""

from __future__ import annotations

from dataclasses import replace

from gpu_workers.model_store.config_keys import ConfigKeys
from gpu_workers.models.llama.config import LlamaConfig, TensorNames, read_plain

_QKV, _GATE_UP = "self_attn.qkv_proj", "mlp.gate_up_proj"
_NAMES = TensorNames(qkv=(_QKV, _QKV, _QKV), gate_up=(_GATE_UP, _GATE_UP))


def read_phi3(keys: ConfigKeys) -> LlamaConfig:
    """Models of model_type phi3. Raises ModelConfigError naming the key, also for unsupported "longrope" scaling."""
    return replace(read_plain(keys), names=_NAMES)
