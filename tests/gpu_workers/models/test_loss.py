"""What pages of 8-bit integers cost the real SmolLM2: perplexity and the likeliest next token over a text."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from tests.support.workers.paged_loop import PagedLoop, PagedSequence, build_step

pytestmark = pytest.mark.slow

PROSE = Path(__file__).with_name("prose.txt")
CHUNK_TOKENS = 250


def model_of(folder: Path, page_dtype: torch.dtype | None) -> Model:
    placement = WeightPlacement(torch.device("cpu"), torch.float32)
    return build_model(read_model_config(folder), folder, placement, page_dtype=page_dtype)


@torch.inference_mode()
def read_text(model: Model, ids: list[int], count_tokens: int) -> tuple[float, torch.Tensor]:
    """Computes the text in steps of so many tokens. Returns its perplexity and the likeliest next tokens."""
    loop, sequence = PagedLoop(model, 256), PagedSequence(ids)
    sequence.pages = [int(page) for page in torch.randperm(256, generator=torch.Generator().manual_seed(0))]
    losses, likeliest = [], []
    while sequence.computed < len(ids) - 1:
        count = min(count_tokens, len(ids) - 1 - sequence.computed)
        step = replace(build_step([(sequence, count)]), sample_index=torch.arange(count))
        logits = model.logits(model.forward(step, loop.kv)).float()
        sequence.computed += count
        wanted = torch.tensor(ids[sequence.computed - count + 1 : sequence.computed + 1])
        losses.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none"))
        likeliest.append(logits.argmax(-1))
    return math.exp(torch.cat(losses).mean().item()), torch.cat(likeliest)


def test_loss_over_a_text(smollm2_folder: Path) -> None:
    """Long rows, which torch computes, and rows of 10 tokens, which the kernel computes."""
    ids = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json")).encode(PROSE.read_text()).ids
    assert len(ids) > 2000
    plain, small = (model_of(smollm2_folder, page_dtype) for page_dtype in (None, torch.int8))
    for part, count_tokens, most in ((ids, CHUNK_TOKENS, 1.005), (ids[:300], 10, 1.02)):
        (before, wanted), (after, got) = (read_text(model, part, count_tokens) for model in (plain, small))
        agreement = (got == wanted).float().mean().item()
        print(f"{len(part)} tokens, {count_tokens} at once: perplexity {before:.4f} -> {after:.4f}, {agreement:.2%} agree")
        assert after <= before * most
        assert agreement >= 0.96
