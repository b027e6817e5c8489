"""What of a GGUF file's keys becomes the rope of a config.json, and its end tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpu_workers.model_store.gguf_config import end_token_ids, hugging_face_config
from gpu_workers.model_store.gguf_header import GgufError, GgufKeys

HEAD_DIM, THETA, FACTOR = 64, 500_000.0, 8.0
KEYS: dict[str, Any] = {
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 4 * HEAD_DIM,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": THETA,
    "llama.vocab_size": 5,
    "tokenizer.ggml.eos_token_id": 1,
}


class Keys(GgufKeys):
    """The keys of a file, without a file."""

    def __init__(self, factors: np.ndarray | None = None, **others: Any) -> None:
        self._values = KEYS | {name.replace("__", "."): value for name, value in others.items()}
        self._factors = factors

    @property
    def architecture(self) -> str:
        return "llama"

    @property
    def tensor_names(self) -> frozenset[str]:
        return frozenset({"token_embd.weight", "output.weight"})

    def key(self, name: str, default: Any = ...) -> Any:
        value = self._values.get(name, default)
        if value is ...:
            raise GgufError(f"{name}: missing")
        return value

    def model_key(self, name: str, default: Any = ...) -> Any:
        return self.key(f"{self.architecture}.{name}", default)

    def array_length(self, name: str) -> int:
        raise GgufError(f"{name}: missing")

    def rope_factors(self) -> np.ndarray | None:
        return self._factors


def llama3_factors() -> np.ndarray:
    """The divisors as Llama 3's own code computes them: one loop over the frequencies."""
    factors = []
    for index in range(0, HEAD_DIM, 2):
        wavelength = 2 * np.pi * THETA ** (index / HEAD_DIM)
        if wavelength < 8192 / 4.0:
            factors.append(1.0)
        elif wavelength > 8192 / 1.0:
            factors.append(FACTOR)
        else:
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            factors.append(1.0 / ((1 - smooth) / FACTOR + smooth))
    return np.array(factors, np.float32)


def rope_of(keys: Keys) -> Any:
    config = hugging_face_config(keys)
    return config.get("rope_scaling") or config["rope_parameters"]


def test_the_factors_of_llama_3_give_its_parameters_back() -> None:
    rope = rope_of(Keys(llama3_factors()))
    assert (rope["rope_type"], rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]) == (
        "llama3",
        FACTOR,
        1.0,
        4.0,
    )
    assert rope["original_max_position_embeddings"] == 8192


def test_other_factors_are_refused() -> None:
    with pytest.raises(GgufError, match=r"rope_freqs\.weight: expected the factors of Llama 3"):
        hugging_face_config(Keys(llama3_factors()[::-1].copy()))


def test_linear_scaling_is_known_and_others_are_refused() -> None:
    linear = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 2.0}
    assert rope_of(Keys(**linear))["factor"] == 2.0
    with pytest.raises(GgufError, match="expected none or linear, got 'yarn'"):
        hugging_face_config(Keys(llama__rope__scaling__type="yarn"))
    with pytest.raises(GgufError, match="expected 64"):
        hugging_face_config(Keys(llama__rope__dimension_count=32))


def test_all_ends_count_once_and_one_is_needed() -> None:
    assert end_token_ids(Keys(tokenizer__ggml__eot_token_id=7, tokenizer__ggml__eom_token_id=1)) == [1, 7]
    with pytest.raises(GgufError, match="eos_token_id: expected the id of a token, got none"):
        end_token_ids(Keys(tokenizer__ggml__eos_token_id=None))
