"""Texts as token ids to vectors: sorts them by length, cuts them into batches, runs the model, pools and normalises.

Needs nothing of the server: `load_encoder(folder).embed([ids, ...])` works in any process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from gpu_workers.embedding.bert import BertEncoder, EncoderWeights
from gpu_workers.embedding.model import HiddenStates, TextEncoder
from gpu_workers.embedding.model_files import Pooling, read_model
from gpu_workers.embedding.settings import MAX_BATCH_TOKENS


class Encoder(TextEncoder):
    """A model with its pooling."""

    def __init__(self, model: HiddenStates, pooling: Pooling, dimensions: int, batch_tokens: int = MAX_BATCH_TOKENS) -> None:
        self._model, self._pooling, self.dimensions = model, pooling, dimensions
        self._batch_tokens = batch_tokens

    def embed(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """`texts`: token ids, int32 [n] each, n >= 1. Returns vectors of length 1, float32 [texts, dimensions]."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for batch in self._batches(texts, order):
            vectors[batch] = self._vectors([texts[index] for index in batch])
        return vectors

    def _batches(self, texts: Sequence[np.ndarray], order: list[int]) -> Iterator[list[int]]:
        """The indexes in their order, cut where a batch has enough tokens."""
        batch: list[int] = []
        n_tokens = 0
        for index in order:
            if batch and n_tokens + len(texts[index]) > self._batch_tokens:
                yield batch
                batch, n_tokens = [], 0
            batch.append(index)
            n_tokens += len(texts[index])
        if batch:
            yield batch

    @torch.inference_mode()
    def _vectors(self, texts: list[np.ndarray]) -> np.ndarray:
        hidden = self._model.forward(texts)
        per_text = hidden.split([len(text) for text in texts])
        if self._pooling is Pooling.MEAN:
            pooled = torch.stack([one.mean(0) for one in per_text])
        else:
            pooled = torch.stack([one[0] for one in per_text])
        return F.normalize(pooled, dim=1).cpu().numpy()


def load_encoder(folder: Path, device: str = "cpu", batch_tokens: int = MAX_BATCH_TOKENS) -> Encoder:
    """The embedding model in a folder, on a device of torch.

    Raises: ConfigError, WeightsError naming what does not fit; torch's errors for a missing device."""
    found = read_model(folder.name, folder)
    model = BertEncoder(found.config, EncoderWeights(folder, torch.device(device)))
    return Encoder(model, found.pooling, found.config.hidden_size, batch_tokens)
