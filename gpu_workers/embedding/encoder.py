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
from gpu_workers.embedding.decoder import load_decoder
from gpu_workers.embedding.model import HiddenStates, TextEncoder
from gpu_workers.embedding.model_files import BertConfig, read_model
from gpu_workers.embedding.sentence_files import Pooling
from gpu_workers.embedding.settings import MAX_BATCH_TOKENS, EmbedderSettings
from gpu_workers.models.weights import WeightPlacement


class Encoder(TextEncoder):
    """A model with its pooling. `normalizes`: vectors get length 1."""

    def __init__(
        self,
        model: HiddenStates,
        pooling: Pooling,
        dimensions: int,
        batch_tokens: int = MAX_BATCH_TOKENS,
        *,
        normalizes: bool = True,
    ) -> None:
        self._model, self._pooling, self.dimensions = model, pooling, dimensions
        self._batch_tokens, self._normalizes = batch_tokens, normalizes

    def embed(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """`texts`: token ids, int32 [n] each -> vectors, float32 [texts, dimensions]. Texts of similar length are computed
        together."""
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
        lengths = np.array([len(text) for text in texts])
        ends = lengths.cumsum()
        if self._pooling is Pooling.MEAN:
            pooled = torch.stack([one.mean(0) for one in self._model.forward(texts).split(lengths.tolist())])
        else:
            pooled = self._model.forward(texts, ends - (1 if self._pooling is Pooling.LAST else lengths))
        return (F.normalize(pooled, dim=1) if self._normalizes else pooled).cpu().numpy()


def load_encoder(folder: Path, settings: EmbedderSettings | None = None) -> Encoder:
    """The embedding model in a folder, as the settings say.

    The model is then used in the thread that has loaded it. Raises: ConfigError, ModelConfigError, WeightsError naming what
    does not fit; torch's errors for a missing device."""
    settings = settings or EmbedderSettings()
    found, device = read_model(folder.name, folder, settings), use_device(settings.device)
    if isinstance(found.config, BertConfig):
        model: HiddenStates = BertEncoder(found.config, EncoderWeights(folder, device))
    else:
        model = load_decoder(found.config, folder, WeightPlacement(device, getattr(torch, settings.dtype_name)))
    pooling, dimensions = found.pooling, found.dimensions
    return Encoder(model, pooling, dimensions, settings.batch_tokens, normalizes=found.files.normalizes)


def use_device(name: str) -> torch.device:
    """The device "cpu", "cuda" or "cuda:N", on which kernels of this thread now run. Raises: torch's errors."""
    device = torch.device(name)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    return device
