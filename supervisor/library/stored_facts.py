"""What is known of a model on this machine without loading it: its type, size, context, numbers, text, and whether it fits."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_workers.layers.shard import rank_parameters, shard_model
from gpu_workers.model_store.gguf_header import GgufHeader
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.resolve import read_config
from messages.errors import ConfigError
from supervisor.library.stored_model import StoredModel

_LICENSE_LINE = re.compile(r"^license:\s*(\S+)", re.MULTILINE)
_FRONT = "---\n"


@dataclass(frozen=True)
class StoredFacts:
    """One model. "" and 0: not known. `room`: how it would run here; `lack`: why it cannot; one of the two is empty."""

    model_type: str = ""
    n_parameters: int = 0
    context_tokens: int = 0
    numbers: str = ""  # the types of its weights: bfloat16, Q4_1, ...
    license: str = ""
    room: str = ""
    lack: str = ""


@dataclass(frozen=True)
class ModelText:
    """The longer part: settings of its shape and of generation, and its chat template."""

    shape: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    template: str = ""


def facts_of(model: StoredModel) -> StoredFacts:
    """What is known of `model`. Never raises for a model that is damaged, or that cannot be run: `lack` says so."""
    if not model.is_whole:
        return StoredFacts(lack="not whole: the supervisor pull that was interrupted goes on")
    config, reason = _config_of(model.name)
    header = _header(model)
    raw = _raw_config(model)
    room, lack = _fit(model.name) if config else _embedder_fit(model.name, reason)
    return StoredFacts(
        model_type=config.model_type if config else str(raw.get("model_type", "")),
        n_parameters=rank_parameters(config, shard_model(config, 0, 1)) if config else 0,
        context_tokens=config.max_position if config else int(raw.get("max_position_embeddings") or 0),
        numbers=header.file_type or "GGUF" if header else _numbers(raw, config),
        license=_license(model, header),
        room=room,
        lack=lack,
    )


def text_of(model: StoredModel) -> ModelText:
    """The longer part of what is known."""
    config, _ = _config_of(model.name)
    names = ("n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "ffn", "vocabulary")
    shape = {name: getattr(config, name) for name in names} if config else {}
    header = _header(model)
    if header is not None:
        return ModelText(shape, {}, str(header.key("tokenizer.chat_template", "")))
    template = str(_json(model.path / "tokenizer_config.json").get("chat_template") or "")
    with suppress(OSError):
        template = (model.path / "chat_template.jinja").read_text(encoding="utf-8")
    return ModelText(shape, _json(model.path / "generation_config.json"), template)


def _config_of(name: str) -> tuple[ModelConfig | None, str]:
    """The configuration of a model that a server can run, or why it cannot."""
    try:
        return read_config(name, may_download=False), ""
    except (ValueError, OSError) as error:
        return None, str(error)


def _fit(name: str) -> tuple[str, str]:
    """How a server of all defaults would run the model here, or why it cannot."""
    from supervisor.config.server_config import load_config
    from supervisor.placement.host import plan_start

    try:
        return plan_start(load_config(None, [{"model": name}])).summary(), ""
    except ConfigError as error:
        return "", str(error)


def _embedder_fit(name: str, reason: str) -> tuple[str, str]:
    """The same for a model that only makes vectors. `reason`: why it cannot answer."""
    from gpu_workers.embedding.model_files import check_model
    from gpu_workers.embedding.settings import EmbedderSettings

    try:
        check_model(name, EmbedderSettings())
    except (ConfigError, ValueError, OSError):
        return "", reason
    return "with --embedding-model", ""


def _header(model: StoredModel) -> GgufHeader | None:
    with suppress(ValueError, OSError):
        return GgufHeader(model.gguf) if model.gguf else None
    return None


def _raw_config(model: StoredModel) -> dict[str, Any]:
    return {} if model.gguf else _json(model.path / "config.json")


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _numbers(raw: dict[str, Any], config: ModelConfig | None) -> str:
    if config is not None and config.quantized is not None:
        return config.quantized.label
    quantized = raw.get("quantization_config")
    if isinstance(quantized, dict):
        return str(quantized.get("quant_method", "quantised"))
    return str(raw.get("dtype") or raw.get("torch_dtype") or "").removeprefix("torch.")


def _license(model: StoredModel, header: GgufHeader | None) -> str:
    if header is not None and (said := str(header.key("general.license", ""))):
        return said
    folder = model.path.parent if model.gguf else model.path
    with suppress(OSError, UnicodeDecodeError):
        text = (folder / "README.md").read_text(encoding="utf-8")
        if text.startswith(_FRONT) and (found := _LICENSE_LINE.search(text.removeprefix(_FRONT).partition(_FRONT)[0])):
            return found[1]
    for file in sorted(folder.glob("LICENSE*")):
        with suppress(OSError, UnicodeDecodeError):
            return next((line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()), "")
    return ""
