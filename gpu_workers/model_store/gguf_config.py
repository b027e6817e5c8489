"""Makes config.json and generation_config.json from the keys of a GGUF file."""

from __future__ import annotations

from typing import Any

from gpu_workers.model_store.gguf_header import ARCHITECTURES, GgufError, GgufKeys

_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_ORIGINAL = 1.0, 4.0, 8192  # the same in all published Llama 3.1, 3.2, 3.3


def hugging_face_config(source: GgufKeys) -> dict[str, Any]:
    """The config.json of the model, with transformers' keys. Raises: GgufError for an unsupported rotary scaling."""
    heads, hidden = int(source.model_key("attention.head_count")), int(source.model_key("embedding_length"))
    head_dim = int(source.model_key("attention.key_length", hidden // heads))
    vocabulary = source.model_key("vocab_size", None) or source.array_length("tokenizer.ggml.tokens")
    theta = float(source.model_key("rope.freq_base", 10_000.0))
    architecture = ARCHITECTURES[source.architecture]
    config: dict[str, Any] = {
        "architectures": [architecture.class_name],
        "model_type": source.architecture,
        "num_hidden_layers": int(source.model_key("block_count")),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": int(source.model_key("attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "intermediate_size": int(source.model_key("feed_forward_length")),
        "vocab_size": int(vocabulary),
        "max_position_embeddings": int(source.model_key("context_length")),
        "rms_norm_eps": float(f"{source.model_key('attention.layer_norm_rms_epsilon'):.6g}"),  # stored as float32
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, **_rope_scaling(source, theta, head_dim)},
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in source.tensor_names,
        "attention_bias": architecture.may_have_biases and "blk.0.attn_q.bias" in source.tensor_names,
        "dtype": "float32",
        "bos_token_id": source.key("tokenizer.ggml.bos_token_id", None),
        "eos_token_id": end_token_ids(source)[0],
    }
    window = source.model_key("attention.sliding_window", None)
    return config if window is None else config | {"sliding_window": int(window)}


def generation_config(source: GgufKeys) -> dict[str, Any]:
    """The generation_config.json of the model: the tokens that end a text. Raises: GgufError if there is none."""
    ids = end_token_ids(source)
    return {
        "bos_token_id": source.key("tokenizer.ggml.bos_token_id", None),
        "eos_token_id": ids[0] if len(ids) == 1 else ids,
        "pad_token_id": source.key("tokenizer.ggml.padding_token_id", None),
    }


def end_token_ids(source: GgufKeys) -> list[int]:
    """Ids of end of text, and of end of turn and end of message where the file has them. Raises: GgufError if it has none."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    found = [source.key(f"tokenizer.ggml.{key}", None) for key in keys]
    ids = list(dict.fromkeys(int(one) for one in found if one is not None))
    if not ids:
        raise GgufError("tokenizer.ggml.eos_token_id: expected the id of a token, got none")
    return ids


def _rope_scaling(source: GgufKeys, theta: float, head_dim: int) -> dict[str, Any]:
    if (rotating := int(source.model_key("rope.dimension_count", head_dim))) != head_dim:
        raise GgufError(f"rope.dimension_count: expected {head_dim} (all of a head rotates), got {rotating}")
    factors = source.rope_factors()
    if factors is not None:
        return _llama3_scaling(factors, theta, head_dim)
    kind = str(source.model_key("rope.scaling.type", "none"))
    if kind == "none":
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": float(source.model_key("rope.scaling.factor"))}
    raise GgufError(f"rope.scaling.type: expected none or linear, got {kind!r}")


def _llama3_scaling(factors: Any, theta: float, head_dim: int) -> dict[str, Any]:
    """The file holds the result of Llama 3's scaling, a divisor for each frequency. Finds the parameters and checks them.
    `factors`: a numpy array [head_dim / 2]."""
    import numpy as np  # slow import, which a start that only reads the header does not need

    factor = round(float(factors.max()), 4)
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = _LLAMA3_ORIGINAL * frequencies / (2 * np.pi)
    kept = ((turns - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW)).clip(0.0, 1.0)
    if not np.allclose(factors, 1.0 / (kept + (1.0 - kept) / factor), rtol=1e-3):
        raise GgufError("rope_freqs.weight: expected the factors of Llama 3's scaling, got others")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL,
    }
