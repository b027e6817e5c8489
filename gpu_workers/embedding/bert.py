"""Encoders of the BERT family (Devlin et al., 2018): every token attends to all tokens of its text, before and after it.

A batch has no padding: the tokens of all texts lie one after the other, sorted by length. All products and norms run over all
of them at once; attention runs over the texts of equal length at once, and needs no mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open

from gpu_workers.embedding.model import HiddenStates
from gpu_workers.embedding.model_files import BertConfig
from gpu_workers.model_store.weight_files import WeightsError, weight_files

_ACTIVATIONS = {"gelu": F.gelu, "gelu_new": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu}


@dataclass(frozen=True)
class _Linear:
    weight: torch.Tensor  # [out, in]
    bias: torch.Tensor  # [out]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class _Norm:
    weight: torch.Tensor  # [hidden]
    bias: torch.Tensor  # [hidden]
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class _Layer:
    """One layer. `qkv` is [3 * hidden, hidden]: queries, keys and values in one product."""

    qkv: _Linear
    out: _Linear
    norm: _Norm
    up: _Linear
    down: _Linear
    last_norm: _Norm


@dataclass(frozen=True)
class _Run:
    """`n_texts` texts of `length` tokens each, from token `start` of the batch on."""

    start: int
    n_texts: int
    length: int


class BertEncoder(HiddenStates):
    """The weights of one encoder in float32, on one device. Not thread-safe."""

    def __init__(self, config: BertConfig, weights: EncoderWeights) -> None:
        self.config = config
        self.device = weights.device
        words = weights("embeddings.word_embeddings.weight")
        if words.shape[0] != config.vocab_size:
            raise WeightsError(f"vocab_size: expected {words.shape[0]} as the embeddings have, got {config.vocab_size}")
        self._words = words
        # all tokens of a single text have type 0
        self._positions = (
            weights("embeddings.position_embeddings.weight") + weights("embeddings.token_type_embeddings.weight")[0]
        )
        self._norm = weights.norm("embeddings.LayerNorm", config.layer_norm_eps)
        self._layers = [_layer(weights, f"encoder.layer.{index}", config) for index in range(config.num_hidden_layers)]
        self._activation = _ACTIVATIONS[config.hidden_act]

    @torch.inference_mode()
    def forward(self, texts: list[np.ndarray], tokens: np.ndarray | None = None) -> torch.Tensor:
        """The last hidden states of the texts; each token attends to all tokens of its text. Arguments as in
        `HiddenStates.forward`."""
        runs, lengths = _runs(texts), [len(text) for text in texts]
        ids = torch.from_numpy(np.concatenate(texts).astype(np.int64)).to(self.device)
        positions = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])).to(self.device)
        x = self._norm(F.embedding(ids, self._words) + F.embedding(positions, self._positions))
        for layer in self._layers:
            x = layer.norm(x + layer.out(self._attend(layer.qkv(x), runs)))
            x = layer.last_norm(x + layer.down(self._activation(layer.up(x))))
        return x if tokens is None else x[torch.from_numpy(tokens).to(self.device)]

    def _attend(self, qkv: torch.Tensor, runs: list[_Run]) -> torch.Tensor:
        """[tokens, 3 * hidden] -> [tokens, hidden]."""
        n_heads = self.config.num_attention_heads
        found = []
        for run in runs:
            part = qkv[run.start : run.start + run.n_texts * run.length]
            q, k, v = part.view(run.n_texts, run.length, 3, n_heads, -1).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v)
            found.append(attended.transpose(1, 2).reshape(run.n_texts * run.length, -1))
        return torch.cat(found) if len(found) > 1 else found[0]


class EncoderWeights:
    """Reads the tensors of a folder by name, as float32 on a device. Names may begin with "bert."."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Read all tensors of the safetensors files in `folder` onto `device`. Raises: WeightsError when it has none."""
        self.device = device
        self._folder = folder
        self._tensors: dict[str, torch.Tensor] = {}
        for path in weight_files(folder):
            with safe_open(path, framework="pt") as file:
                self._tensors |= {name.removeprefix("bert."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def __call__(self, name: str) -> torch.Tensor:
        """One tensor. Raises: WeightsError."""
        if name not in self._tensors:
            raise WeightsError(f"{self._folder}: expected the tensor {name}, got none")
        return self._tensors[name].to(self.device, torch.float32)

    def linear(self, *names: str) -> _Linear:
        """The linear layers of these names, which have one input, as one layer with their outputs side by side. Raises:
        WeightsError."""
        return _Linear(
            torch.cat([self(f"{name}.weight") for name in names]).contiguous(),
            torch.cat([self(f"{name}.bias") for name in names]),
        )

    def norm(self, name: str, eps: float) -> _Norm:
        """A layer norm. Raises: WeightsError."""
        return _Norm(self(f"{name}.weight"), self(f"{name}.bias"), eps)


def _layer(weights: EncoderWeights, name: str, config: BertConfig) -> _Layer:
    attention = f"{name}.attention"
    return _Layer(
        qkv=weights.linear(*(f"{attention}.self.{part}" for part in ("query", "key", "value"))),
        out=weights.linear(f"{attention}.output.dense"),
        norm=weights.norm(f"{attention}.output.LayerNorm", config.layer_norm_eps),
        up=weights.linear(f"{name}.intermediate.dense"),
        down=weights.linear(f"{name}.output.dense"),
        last_norm=weights.norm(f"{name}.output.LayerNorm", config.layer_norm_eps),
    )


def _runs(texts: list[np.ndarray]) -> list[_Run]:
    """The texts of equal length that lie beside each other."""
    runs, start = [], 0
    for length, group in groupby(len(text) for text in texts):
        n_texts = len(list(group))
        runs.append(_Run(start, n_texts, length))
        start += n_texts * length
    return runs
