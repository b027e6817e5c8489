"""Numbers as GGUF files have them: integers times steps."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file

from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.weights import tensor_shapes
from tests.support.kernels.integer_products import numbers

TYPES = {4: gguf.GGMLQuantizationType.Q4_1, 8: gguf.GGMLQuantizationType.Q8_0}
_KEYS = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 32,
    "num_key_value_heads": 2, "intermediate_size": 192, "vocab_size": 320, "max_position_embeddings": 512,
}  # fmt: skip


def of_integers(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """weight [out, in], in a multiple of 32 -> the nearest one that a file of Q4_1 (4 bits) or Q8_0 (8) holds, float32."""
    return torch.from_numpy(gguf.dequantize(gguf.quantize(weight.numpy(), TYPES[bits]), TYPES[bits]))


def write_exact_model(folder: Path) -> Path:
    """A tiny checkpoint: layers as in a file of Q4_1, embedding and head as in Q8_0, and one weight of any floats."""
    (folder / "config.json").write_text(json.dumps(_KEYS))
    config = read_model_config(folder)
    assert isinstance(config, LlamaConfig)
    weights = {}
    for seed, (name, shape) in enumerate(tensor_shapes(config).items()):
        plain = torch.ones(shape) if len(shape) == 1 else numbers(*shape, seed=seed) * 0.05
        is_float = len(shape) == 1 or name.endswith("1.mlp.down_proj.weight")  # one that is not made of integers
        weights[name] = plain if is_float else of_integers(plain, 4 if "layers" in name else 8)
    save_file(weights, folder / "model.safetensors")
    return folder
