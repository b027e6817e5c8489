"""What 8-bit integers, in pages or in weights, cost the real SmolLM2: perplexity and the likeliest next token over a text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from gpu_workers.settings import Quantization
from tests.support.workers.model_loss import loss_of, tokens_of

pytestmark = pytest.mark.slow

CHUNK_TOKENS = 250


def model_of(folder: Path, page_dtype: torch.dtype | None = None, quantization: Quantization = "none") -> Model:
    placement = WeightPlacement(torch.device("cpu"), torch.float32, quantization=quantization)
    return build_model(read_model_config(folder), folder, placement, page_dtype=page_dtype)


def test_the_loss_of_compressed_pages(smollm2_folder: Path) -> None:
    """Long rows, which torch computes, and rows of 10 tokens, which the kernel computes."""
    model, n_tokens = model_of(smollm2_folder, torch.int8), len(tokens_of(smollm2_folder))
    for n, count_tokens, most in ((n_tokens, CHUNK_TOKENS, 1.005), (300, 10, 1.02)):
        ratio, agreement = loss_of(model, smollm2_folder, n, count_tokens)
        assert ratio <= most
        assert agreement >= 0.96


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_the_loss_of_quantised_weights(smollm2_folder: Path, quantization: Quantization) -> None:
    """The file has 4-bit weights in its layers, which int4 keeps as they are."""
    if this_machine() is None:
        pytest.skip("needs llvmlite and a processor that kernels are written for")
    model = model_of(smollm2_folder, quantization=quantization)
    ratio, agreement = loss_of(model, smollm2_folder, len(tokens_of(smollm2_folder)), CHUNK_TOKENS)
    assert ratio <= 1.01
    assert agreement >= 0.94
