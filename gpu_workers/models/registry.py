"""Loads a model from a config and a folder: picks the architecture and reads the rank's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.architectures import CONFIG_READERS
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.gemma3.model import load_gemma3
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.model import load_llama
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.quantized.source import QuantizedSource
from gpu_workers.models.weights import NoSource, RandomSource, SafetensorsSource, TensorSource, WeightPlacement

LoadModel = Callable[[Any, RankParts, TensorSource, WeightPlacement, Callable[[float], None]], Model]
MODEL_LOADERS: Mapping[type[ModelConfig], LoadModel] = {  # by the class of its config
    LlamaConfig: load_llama,
    Gemma3Config: load_gemma3,
}
LOAD_FORMATS = ("safetensors", "random")


def load_model(
    config: ModelConfig,
    folder: Path,
    placement: WeightPlacement,
    parts: RankParts,
    *,
    load_format: str = "safetensors",
    seed: int = 0,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> Model:
    """The model of `folder` on `placement.device` in `placement.dtype`. load_format "random" needs no weight files and makes
    weights from `seed`. on_progress gets the fraction done, 0 .. 1.

    Raises ValueError for an unknown load format or architecture, WeightsError for a checkpoint that does not fit."""
    load = MODEL_LOADERS.get(type(config))
    if load is None:
        raise ValueError(f"model_type: expected one of {', '.join(CONFIG_READERS)}, got {config.model_type!r}")
    if load_format not in LOAD_FORMATS:
        raise ValueError(f"load_format: expected one of {', '.join(LOAD_FORMATS)}, got {load_format!r}")
    source = _source(config, folder, placement, load_format, seed)
    return load(config, parts, source, placement, on_progress)


def _source(config: ModelConfig, folder: Path, placement: WeightPlacement, load_format: str, seed: int) -> TensorSource:
    """Where weights come from. How large those of a quantised checkpoint are depends on its tensors, so they are looked at also
    where weights are only counted."""
    reads = placement.memory.wants_content
    if load_format == "random":
        return RandomSource(seed) if reads else NoSource()
    if config.quantized is not None and (reads or placement.device.type == "meta"):
        return QuantizedSource(folder, config.quantized, reads=reads)
    return SafetensorsSource(folder) if reads else NoSource()
