"""Reads a GGUF file: its keys, and its weights under Hugging Face names. The `gguf` package does the parsing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import dequantize

from gpu_workers.model_store.gguf_header import ARCHITECTURES, GgufError, GgufKeys, check_architecture
from gpu_workers.model_store.gguf_reader import QuickGgufReader, contents_of

ROPE_FACTORS = "rope_freqs.weight"
_MISSING = object()
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


class GgufFile(GgufKeys):
    """An opened file. Tensors are mapped and dequantised one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = QuickGgufReader(path)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise GgufError(f"{path}: expected a GGUF file: {error}") from error
        self._architecture = check_architecture(str(self.key("general.architecture")))

    @property
    def architecture(self) -> str:
        """The model's architecture: one of ARCHITECTURES."""
        return self._architecture

    def key(self, name: str, default: Any = _MISSING) -> Any:
        """The value of a key; the default where it is missing. Raises: GgufError when it is missing and there is no default."""
        field = self._reader.fields.get(name)
        if field is not None:
            return contents_of(field)
        if default is _MISSING:
            raise GgufError(f"{name}: expected this key in {self.path.name}, got none")
        return default

    def model_key(self, name: str, default: Any = _MISSING) -> Any:
        """The value of a key in the section of the architecture; default and errors as for `key`."""
        return self.key(f"{self.architecture}.{name}", default)

    def array_length(self, name: str) -> int:
        """The number of elements of an array. Raises: GgufError when it is missing."""
        return len(self.key(name))

    @property
    def n_tensors(self) -> int:
        """Tensors in the file."""
        return len(self._reader.tensors)

    @property
    def tensor_names(self) -> frozenset[str]:
        """The file's own names of its tensors."""
        return frozenset(tensor.name for tensor in self._reader.tensors)

    def rope_factors(self) -> np.ndarray | None:
        """Divisors of the rotary frequencies [head_dim / 2] float32, where the file has them."""
        for tensor in self._reader.tensors:
            if tensor.name == ROPE_FACTORS:
                return np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        return None

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """(Hugging Face name, float32 array [out, in]) of each weight, with exactly the values that its blocks encode."""
        heads = int(self.model_key("attention.head_count"))
        kv_heads = int(self.model_key("attention.head_count_kv", heads))
        for tensor in self._reader.tensors:
            if tensor.name == ROPE_FACTORS:
                continue
            name = hugging_face_name(tensor.name)
            values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            if ARCHITECTURES[self.architecture].rotates_pairs and name.split(".")[-2] in ("q_proj", "k_proj"):
                values = halves_from_pairs(values, heads if ".q_proj." in name else kv_heads)
            yield name, values


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor. Raises: GgufError for a tensor that no supported architecture has."""
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise GgufError(f"tensors: expected those of one of {', '.join(ARCHITECTURES)}, got {name}")
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"


def halves_from_pairs(values: np.ndarray, n_heads: int) -> np.ndarray:
    """GGUF's llama files rotate neighbouring rows of a head (0, 1), (2, 3), ..; Hugging Face rotates row i with row i + half.
    Reorders the rows [n_heads * head_dim, ...] from the first to the second."""
    half = values.shape[0] // n_heads // 2
    pairs = values.reshape(n_heads, half, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
