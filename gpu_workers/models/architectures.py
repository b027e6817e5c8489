"""The one list of model types that can be run, and how each one's `config.json` is read. No torch here.

A model type maps to a function that returns the config of its architecture; `registry` maps that config's class to the model
that computes. A model type that shares an architecture's layer needs only a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpu_workers.model_store.config_keys import ConfigKeys, ModelConfigError, read_keys
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.gemma3.config import read_gemma3
from gpu_workers.models.llama.config import read_llama, read_qwen2, read_qwen3
from gpu_workers.models.phi3 import read_phi3

CONFIG_READERS: Mapping[str, Callable[[ConfigKeys], ModelConfig]] = {
    "llama": read_llama,
    "mistral": read_llama,
    "qwen2": read_qwen2,
    "qwen3": read_qwen3,
    "gemma3_text": read_gemma3,
    "phi3": read_phi3,
}


def read_model_config(folder: Path) -> ModelConfig:
    """Config of the model in `folder`. Raises ModelConfigError naming the key, or the file if it cannot be read."""
    return _read(read_keys(folder / "config.json"))


def parse_model_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Config of the model that `raw`, a Hugging Face config.json, describes. Raises ModelConfigError naming the key."""
    return _read(ConfigKeys(raw))


def _read(keys: ConfigKeys) -> ModelConfig:
    model_type = keys.text("model_type")
    if model_type not in CONFIG_READERS:
        raise ModelConfigError(f"model_type: expected one of {', '.join(CONFIG_READERS)}, got {model_type!r}")
    return CONFIG_READERS[model_type](keys)
