"""Decoders as embedding models: the hidden states of texts, by the models that generate text.

A batch is one step of prompts, in which each text is a row that begins at position 0. Nothing is kept from step to step: a
layer's keys and values are read by that layer alone, so all layers write them to the same pages.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.batch.uploads import upload_together
from gpu_workers.embedding.model import HiddenStates
from gpu_workers.embedding.text_attention import TextAttention
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.shard import shard_model
from gpu_workers.layers.tensor_group import SingleRank
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.registry import load_model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.backend import choose_backend, cpu_ops
from messages.steps import PAGE_TOKENS


class DecoderStates(HiddenStates):
    """A model of `gpu_workers.models`, with the pages of one batch. Not thread-safe."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._pages: KvPages | None = None
        self._n_pages = 0

    def forward(self, texts: list[np.ndarray], tokens: np.ndarray | None = None) -> torch.Tensor:
        """The hidden states before the head; each token attends to itself and those before it. Arguments as in
        `HiddenStates.forward`."""
        step = step_of(texts, tokens, self._model.device)
        needed = sum(-(-len(text) // PAGE_TOKENS) for text in texts)
        if self._pages is None or self._n_pages < needed:
            self._pages = None  # before the larger ones are allocated
            self._pages, self._n_pages = shared_pages(self._model, needed), needed
        return self._model.forward(step, self._pages).float()


def load_decoder(config: ModelConfig, folder: Path, placement: WeightPlacement) -> DecoderStates:
    """The decoder of a folder without its head, with the back ends of its device.

    Raises: WeightsError naming what does not fit; torch's errors for a missing device."""
    config = replace(config, has_head=False)
    return DecoderStates(load_model(config, folder, placement, _parts(config, placement)))


def _parts(config: ModelConfig, placement: WeightPlacement) -> RankParts:
    """What computes the layers on this device. All that depends on the device is here."""
    shard = shard_model(config, 0, 1)
    if placement.device.type == "cpu":
        return RankParts(shard, cpu_ops(placement.dtype), TextAttention(), SingleRank())
    backend = choose_backend(placement, config, shard)
    return RankParts(shard, backend.ops, backend.attention, SingleRank())


def step_of(texts: list[np.ndarray], tokens: np.ndarray | None, device: torch.device) -> StepTensors:
    """One step of whole texts, each on pages of its own, from page 0 on.

    texts: token ids, int32 [n] each, n >= 1, sorted by length; tokens: int64 [S], the tokens of the batch whose hidden states
    are wanted; None: all."""
    counts = np.array([len(text) for text in texts], np.int64)
    offsets, n_pages = np.cumsum(counts) - counts, -(-counts // PAGE_TOKENS)
    first_pages = np.cumsum(n_pages) - n_pages
    positions = np.arange(counts.sum()) - np.repeat(offsets, counts)
    table = np.minimum(first_pages[:, None] + np.arange(n_pages.max()), n_pages.sum() - 1)
    ids, on_device, slots, pages, lengths, *wanted = upload_together(
        (
            np.concatenate(texts).astype(np.int64),
            positions,
            np.repeat(first_pages * PAGE_TOKENS, counts) + positions,
            table.reshape(-1),
            counts,
            *([] if tokens is None else [tokens]),
        ),
        device,
    )
    return StepTensors(
        token_ids=ids,
        positions=on_device,
        slot_mapping=slots,
        page_table=pages.view(table.shape).to(torch.int32),
        lengths=lengths.to(torch.int32),
        n_decode=int((counts == 1).sum()),
        row_starts=np.zeros(len(texts), np.int32),
        row_counts=counts.astype(np.int32),
        row_offsets=offsets.astype(np.int32),
        sample_index=wanted[0] if wanted else None,
    )


def shared_pages(model: Model, n_pages: int) -> KvPages:
    """Pages of one layer, which every layer uses in turn. All keys come first, then all values; so the storage is not in the
    order of pages, and the `n_pages` of the result has no meaning."""
    shape = model.kv_shape
    sizes = (2, n_pages, PAGE_TOKENS, shape.n_kv_heads, shape.head_dim)
    storage = torch.zeros(sizes, dtype=shape.dtype, device=model.device)
    return KvPages(shape, storage, (storage[0],) * shape.n_layers, (storage[1],) * shape.n_layers)
