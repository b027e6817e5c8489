"""The models that pages name: the shape of one, and one that a hub on this machine has, as a folder and as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tests.support.hub.small_gguf import gguf_content

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14_336, "vocab_size": 128_256, "max_position_embeddings": 131_072,
}  # fmt: skip
_SMALL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100,
    "max_position_embeddings": 256, "torch_dtype": "bfloat16",
}  # fmt: skip


def hub_files(folder: Path) -> dict[str, bytes]:
    """The files of a model on a hub. `folder`: where one of them is made."""
    return {
        "config.json": json.dumps(_SMALL).encode(),
        "model.safetensors": save({"a": np.zeros((50, 50))}),
        "file.gguf": gguf_content(folder),
    }
