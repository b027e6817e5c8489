"""Splitting a model over ranks: which sizes are possible, and what each rank then holds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels import int4_weights, int8_weights
from gpu_workers.cuda import fp8_weights
from gpu_workers.layers.shard import can_split, is_even_split, rank_parameters, shard_model, split_sizes
from gpu_workers.layers.torch_ops import TorchOps
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.weights import ModelWeights, load_weights, tensor_shapes
from gpu_workers.models.weights import RandomSource, WeightPlacement, WeightReader
from gpu_workers.runner.memory_estimate import cpu_weight_bytes, estimate_cuda_rank, widened_tokens
from gpu_workers.settings import KvDtype, Quantization

SMOLLM2 = ModelConfig("llama", 30, 576, 9, 3, 64, 1536, 49_152, 8192, tied_embeddings=True)
LLAMA_8B = ModelConfig("llama", 32, 4096, 32, 8, 128, 14_336, 128_256, 131_072)


def test_the_sizes_that_can_be_split_are_listed() -> None:
    assert split_sizes(SMOLLM2) == (1, 2, 3, 9)
    assert split_sizes(LLAMA_8B) == (1, 2, 3, 4, 5, 6, 7, 8, 16, 32)
    assert [size for size in split_sizes(LLAMA_8B) if is_even_split(LLAMA_8B, size)] == [1, 2, 4, 8, 16, 32]
    assert not is_even_split(SMOLLM2, 2)
    with pytest.raises(ValueError, match=r"^tensor parallel size: expected one of 1, 2, 3, 9, got 4$"):
        shard_model(SMOLLM2, 0, 4)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 70))
def test_the_ranks_together_hold_every_head_once_or_in_copies(n_kv_heads: int, shared: int, size: int) -> None:
    config = ModelConfig("llama", 1, 64, n_kv_heads * shared, n_kv_heads, 8, 64, 100, 128)
    if not can_split(config, size):
        assert size not in split_sizes(config)
        return
    shards = [shard_model(config, rank, size) for rank in range(size)]
    assert [head for shard in shards for head in shard.heads] == list(range(config.n_heads))
    assert {head for shard in shards for head in shard.kv_heads} == set(range(n_kv_heads))
    assert all(len(shard.heads) % len(shard.kv_heads) == 0 for shard in shards)
    assert is_even_split(config, size) == (len({(len(shard.heads), len(shard.kv_heads)) for shard in shards}) == 1)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig("qwen2", 2, 24, 6, 3, 4, 10, 17, 64, qkv_bias=True),
        LlamaConfig("qwen3", 1, 24, 6, 3, 4, 12, 18, 64, qk_norm=True, tied_embeddings=True),
        LlamaConfig("llama", 2, 24, 6, 3, 8, 12, 18, 64, qkv_bias=True, output_bias=True),
    ],
)
def test_the_parameters_of_a_rank_are_those_it_loads(config: LlamaConfig, size: int) -> None:
    for rank in range(size):
        shard = shard_model(config, rank, size)
        placement = WeightPlacement(torch.device("cpu"), torch.float32)
        weights = load_weights(config, shard, WeightReader(tensor_shapes(config), RandomSource(), placement))
        assert rank_parameters(config, shard) == _count(weights)


class Int8Packing(TorchOps):
    """Packs weights as integers."""

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> uint8, 8 bits for each number and the scales."""
        return int8_weights.pack(weight)


class Fp8Packing(TorchOps):
    """Packs as ranks on GPUs do with 8-bit floats."""

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        return fp8_weights.pack(weight)

    def pack_head(self, weight: torch.Tensor) -> torch.Tensor:
        return weight


class Int4Packing(Int8Packing):
    """Packs weights as integers of 4 bits, but for the head."""

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> uint8, 4 bits for each number and the scales."""
        return int4_weights.pack(weight)

    def pack_head(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> uint8, 8 bits for each number and the scales."""
        return int8_weights.pack(weight)


PACKINGS: dict[Quantization, TorchOps] = {"int8": Int8Packing(), "int4": Int4Packing()}


@pytest.mark.parametrize("quantization", PACKINGS)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("is_tied", [True, False])
def test_the_bytes_of_quantised_weights_are_those_that_ranks_hold(size: int, is_tied: bool, quantization: Quantization) -> None:
    """With tied embeddings the table stays beside the head that is packed from it. Sizes are multiples of the blocks."""
    config = LlamaConfig("qwen2", 2, 192, 6, 3, 32, 192, 192, 64, tied_embeddings=is_tied, qkv_bias=True)
    n_bytes, placement = 0, WeightPlacement(torch.device("cpu"), torch.bfloat16)
    for rank in range(size):
        shard = shard_model(config, rank, size)
        reader = WeightReader(tensor_shapes(config), RandomSource(), placement, PACKINGS[quantization])
        for tensor in _tensors(load_weights(config, shard, reader)):
            n_bytes += tensor.nbytes - (int8_weights.HEADER_BYTES if tensor.dtype == torch.uint8 else 0)
    assert cpu_weight_bytes(config, size, "bfloat16", quantization) == n_bytes


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_estimate_of_fp8_weights_is_a_little_above_what_a_rank_holds(is_tied: bool) -> None:
    """Table and head keep their dtype; tied, they are one tensor."""
    config = LlamaConfig("llama", 2, 512, 8, 4, 64, 1024, 640, 64, tied_embeddings=is_tied)
    reader = WeightReader(
        tensor_shapes(config), RandomSource(), WeightPlacement(torch.device("cpu"), torch.bfloat16), Fp8Packing()
    )
    tensors = {id(tensor): tensor for tensor in _tensors(load_weights(config, shard_model(config, 0, 1), reader))}
    n_bytes = sum(tensor.nbytes for tensor in tensors.values())
    estimate = estimate_cuda_rank(config, 1, "bfloat16", 64, 4, "fp8").weight_bytes
    assert n_bytes <= estimate <= 1.01 * n_bytes
    assert sum(tensor.dtype == torch.uint8 for tensor in tensors.values()) == 2 * 4


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
def test_the_estimate_counts_the_memory_for_widened_keys(kv_dtype: KvDtype) -> None:
    """That of the longest sequence, or of 65,536 tokens, or 512 MiB, whichever is less; each rank has its kv heads."""
    for max_position, tp, n_tokens in ((8192, 1, 65_536), (131_072, 1, 131_072), (1 << 20, 1, 131_072), (1 << 20, 4, 524_288)):
        config = LlamaConfig("llama", 2, 4096, 32, 8, 128, 1024, 640, max_position)
        plain, small = (estimate_cuda_rank(config, tp, "bfloat16", 64, 4, "none", dtype) for dtype in ("auto", kv_dtype))
        assert widened_tokens(config, 8 // tp) == n_tokens
        assert small.working_bytes - plain.working_bytes == n_tokens * 2 * (8 // tp) * 128 * 2 <= 512 << 20
        assert small.kv_token_bytes < 0.51 * plain.kv_token_bytes


def _count(weights: ModelWeights) -> int:
    return sum(tensor.numel() for tensor in _tensors(weights))


def _tensors(weights: ModelWeights) -> list[torch.Tensor]:
    tensors = [weights.embedding, weights.norm, *([] if weights.head is weights.embedding else [weights.head])]
    for layer in weights.layers:
        tensors += [tensor for tensor in vars(layer).values() if tensor is not None]
    return tensors
