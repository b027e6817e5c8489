"""What 8-bit numbers, in pages or in weights, cost the real SmolLM2: perplexity and the likeliest next token over a text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.layers.attention import TorchAttention
from gpu_workers.layers.page_format import FP8, INT4
from gpu_workers.layers.shard import shard_model
from gpu_workers.layers.tensor_group import SingleRank
from gpu_workers.layers.torch_ops import TorchOps
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.registry import load_model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from gpu_workers.settings import Quantization
from messages.steps import PAGE_TOKENS
from tests.support.workers.model_loss import compress_pages, loss_of, read_text, tokens_of

pytestmark = pytest.mark.slow

CHUNK_TOKENS = 250
_WHOLE = 10**6
# `make test` reads the first tokens of the text, make test-long all of them
LENGTHS = pytest.mark.parametrize("most_tokens", [501, pytest.param(_WHOLE, marks=pytest.mark.long)])


def model_of(folder: Path, page_dtype: torch.dtype | None = None, quantization: Quantization = "none") -> Model:
    placement = WeightPlacement(torch.device("cpu"), torch.float32, quantization=quantization)
    return build_model(read_model_config(folder), folder, placement, page_dtype=page_dtype)


@pytest.mark.long
def test_the_loss_of_compressed_pages(smollm2_folder: Path) -> None:
    """Long rows, which torch computes, and rows of 10 tokens, which the kernel computes."""
    model, n_tokens = model_of(smollm2_folder, torch.int8), len(tokens_of(smollm2_folder))
    for n, count_tokens, most in ((n_tokens, CHUNK_TOKENS, 1.005), (300, 10, 1.02)):
        ratio, agreement = loss_of(model, smollm2_folder, n, count_tokens)
        assert ratio <= most
        assert agreement >= 0.96


@pytest.mark.long
def test_the_loss_of_pages_of_small_integers(smollm2_folder: Path) -> None:
    """Keys of 32 levels and values of 11. The ratio is 1.0115 with the compiled kernels, 1.0136 without."""
    model, n_tokens = model_of(smollm2_folder, INT4), len(tokens_of(smollm2_folder))
    ratio, agreement = loss_of(model, smollm2_folder, n_tokens, CHUNK_TOKENS)
    assert ratio <= 1.02
    assert agreement >= 0.91


@pytest.mark.long
def test_the_loss_after_a_prefix_that_came_from_compressed_places(smollm2_folder: Path) -> None:
    """The rest of the text, whose own pages are as they are. The ratio is 1.0012, and as much when the prefix has come and gone
    three times."""
    model, ids = model_of(smollm2_folder), tokens_of(smollm2_folder)
    n_prefix = 75 * PAGE_TOKENS
    before, wanted = read_text(model, ids, CHUNK_TOKENS, n_prefix)
    after, got = read_text(model, ids, CHUNK_TOKENS, n_prefix, compress_pages)
    assert after / before <= 1.02
    assert (got == wanted).float().mean().item() >= 0.94


@pytest.mark.long
def test_the_loss_of_pages_of_small_floats(smollm2_folder: Path) -> None:
    """GPUs have the kernels; this is their arithmetic in torch. Over the whole text the ratio is 1.0016."""
    config = read_model_config(smollm2_folder)
    shard = shard_model(config, 0, 1)
    attention = TorchAttention(torch.float32, shard.shared_heads, len(shard.kv_heads))
    parts = RankParts(shard, TorchOps(), attention, SingleRank(), FP8)
    model = load_model(config, smollm2_folder, WeightPlacement(torch.device("cpu"), torch.float32), parts)
    ratio, agreement = loss_of(model, smollm2_folder, len(tokens_of(smollm2_folder)), CHUNK_TOKENS)
    assert ratio <= 1.005
    assert agreement >= 0.955


@LENGTHS
@pytest.mark.parametrize("quantization", [pytest.param("int8", marks=pytest.mark.long), "int4"])
def test_the_loss_of_quantised_weights(smollm2_folder: Path, quantization: Quantization, most_tokens: int) -> None:
    """The file has 4-bit weights in its layers, which int4 keeps as they are."""
    if this_machine() is None:
        pytest.skip("needs llvmlite and a processor that kernels are written for")
    model = model_of(smollm2_folder, quantization=quantization)
    n_tokens = min(len(tokens_of(smollm2_folder)), most_tokens)
    ratio, agreement = loss_of(model, smollm2_folder, n_tokens, CHUNK_TOKENS)
    assert ratio <= 1.01
    assert agreement >= 0.94


@LENGTHS
def test_nothing_is_lost_with_stored_integers(smollm2_folder: Path, most_tokens: int) -> None:
    """Only the order of some sums is another one."""
    if this_machine() is None:
        pytest.skip("needs llvmlite and a processor that kernels are written for")
    model = model_of(smollm2_folder, quantization="exact")
    n_tokens = min(len(tokens_of(smollm2_folder)), most_tokens)
    ratio, agreement = loss_of(model, smollm2_folder, n_tokens, CHUNK_TOKENS)
    assert abs(ratio - 1) <= 1e-4
    assert agreement >= 0.999
