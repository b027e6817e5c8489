"""The perplexity of a model over a text, and how often its likeliest next token is that of the same model in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer

from gpu_workers.layers.int4_places import Int4Places
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from gpu_workers.vault.host_pages import HostPages
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s
from tests.support.workers.paged_loop import PagedLoop, PagedSequence, build_step

ChangePages = Callable[[KvPages, list[int]], None]
PROSE = Path(__file__).with_name("prose.txt")


def tokens_of(folder: Path) -> list[int]:
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROSE.read_text()).ids
    assert len(ids) > 2000
    return ids


@torch.inference_mode()
def read_text(
    model: Model, ids: list[int], count_tokens: int, n_prefix: int = 0, change: ChangePages = lambda kv, pages: None
) -> tuple[float, torch.Tensor]:
    """Computes the text in steps of so many tokens. Returns its perplexity and the likeliest next tokens, both without the
    first n_prefix tokens, which are whole pages. These pages are changed before the rest is computed."""
    loop, sequence = PagedLoop(model, 256), PagedSequence(ids)
    sequence.pages = [int(page) for page in torch.randperm(256, generator=torch.Generator().manual_seed(0))]
    losses, likeliest = [], []
    while sequence.computed < len(ids) - 1:
        is_prefix = sequence.computed < n_prefix
        count = min(count_tokens, (n_prefix if is_prefix else len(ids) - 1) - sequence.computed)
        step = replace(build_step([(sequence, count)]), sample_index=torch.arange(count))
        logits = model.logits(model.forward(step, loop.kv)).float()
        sequence.computed += count
        if is_prefix:
            if sequence.computed == n_prefix:
                change(loop.kv, sequence.pages[: n_prefix // PAGE_TOKENS])
            continue
        wanted = torch.tensor(ids[sequence.computed - count + 1 : sequence.computed + 1])
        losses.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none"))
        likeliest.append(logits.argmax(-1))
    return math.exp(torch.cat(losses).mean().item()), torch.cat(likeliest)


def compress_pages(kv: KvPages, pages: list[int]) -> None:
    """These pages become what comes back from compressed places of a host tier."""
    tier = HostPages(kv.as_bytes(), len(pages), Int4Places(kv.shape))
    numbers, places, hashes = int32s(pages), int32s(range(len(pages))), uint64s(range(1, len(pages) + 1))
    tier.store(numbers, places, hashes)
    kv.storage[pages] = 0
    assert not tier.load(places, numbers, hashes)


def _plain_model(folder: Path) -> Model:
    return build_model(read_model_config(folder), folder, WeightPlacement(torch.device("cpu"), torch.float32))


@cache
def read_plainly(folder: Path, n_tokens: int, count_tokens: int) -> tuple[float, torch.Tensor]:
    """`read_text` of the first tokens, without any integers."""
    return read_text(_plain_model(folder), tokens_of(folder)[:n_tokens], count_tokens)


def loss_of(model: Model, folder: Path, n_tokens: int, count_tokens: int) -> tuple[float, float]:
    """How many times as great the perplexity is as without integers, and the share of equal next tokens."""
    before, wanted = read_plainly(folder, n_tokens, count_tokens)
    after, got = read_text(model, tokens_of(folder)[:n_tokens], count_tokens)
    agreement = (got == wanted).float().mean().item()
    print(f"{n_tokens} tokens, {count_tokens} at once: perplexity {before:.4f} -> {after:.4f}, {agreement:.2%} agree")
    return after / before, agreement
