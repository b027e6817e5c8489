"""What the files of an embedding model say, without torch: where they are, the shape of the model, how vectors are pooled.

A model is an encoder of the BERT family or any decoder that `gpu_workers.models` knows. Beside its checkpoint may lie the files
of sentence-transformers; without them encoders take the mean of their hidden states, and decoders the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from gpu_workers.embedding.sentence_files import Pooling, SentenceFiles, decode_file, read_sentence_files
from gpu_workers.embedding.settings import EmbedderSettings
from gpu_workers.model_store.config_keys import ConfigKeys, read_keys
from gpu_workers.model_store.hub import cached_config, download_config
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.packaged import MINILM, PACKAGES, package_folder
from gpu_workers.model_store.weight_files import check_whole, weight_files
from gpu_workers.models.architectures import CONFIG_READERS
from gpu_workers.models.resolve import FoundModel, ModelKind, fetch_folder, find_model, read_config, read_folder_config
from messages.errors import ConfigError

PACKAGED_MODEL = MINILM
_PACKAGE = PACKAGES[PACKAGED_MODEL]
_BERT = "bert"


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


@dataclass(frozen=True)
class EmbeddingModel:
    """An embedding model on disk. `max_length`: tokens of the longest text, special tokens included."""

    name: str  # what clients see
    folder: Path
    config: BertConfig | ModelConfig
    max_length: int
    pooling: Pooling
    files: SentenceFiles

    @property
    def dimensions(self) -> int:
        """Numbers in each vector of this model."""
        return self.config.hidden_size if isinstance(self.config, BertConfig) else self.config.hidden


def open_model(
    name: str,
    settings: EmbedderSettings | None = None,
    on_progress: Callable[[str, float], None] = lambda what, fraction: None,
) -> EmbeddingModel:
    """The model of this name: the packaged MiniLM, a folder, a GGUF file or a name on the hub. It is downloaded or converted
    first where that is needed, which may take minutes; on_progress gets what is done, and its fraction.

    Raises: ConfigError naming the file and the key."""
    if name.lower() in _PACKAGE.aliases:
        return _opened(PACKAGED_MODEL, _packaged_folder(), settings)
    found = _find(name)
    try:
        return _opened(found.name, fetch_folder(found, on_progress), settings)
    except (ValueError, OSError) as error:
        raise _named(error) from None


def check_model(name: str, settings: EmbedderSettings | None = None) -> None:
    """Return if there is a model of this name that can be served. Neither weights are downloaded, nor files converted.

    Raises: ConfigError naming the file and the key."""
    found = None if name.lower() in _PACKAGE.aliases else _find(name)
    try:
        if found is None or found.kind is ModelKind.FOLDER:
            for path in weight_files(open_model(name, settings).folder):
                check_whole(path)
        elif found.kind is ModelKind.HUB:
            _read_config((cached_config(name) or download_config(name)).parent)
        else:
            read_config(name)
    except (ValueError, OSError) as error:
        raise _named(error) from None


def read_model(name: str, folder: Path, settings: EmbedderSettings | None = None) -> EmbeddingModel:
    """What the files of a folder say; the settings `pooling` and `max_length` come before them.

    Raises: ConfigError, ModelConfigError naming the file and the key."""
    settings = settings or EmbedderSettings()
    config, files = _read_config(folder), read_sentence_files(folder)
    is_bert = isinstance(config, BertConfig)
    longest = config.max_position_embeddings if is_bert else config.max_position
    shorter = [length for length in (settings.max_length, files.max_length) if length]
    pooling = files.pooling or (Pooling.MEAN if is_bert else Pooling.LAST)
    if settings.pooling != "auto":
        pooling = Pooling(settings.pooling)
    return EmbeddingModel(name, folder, config, min([longest, *shorter]), pooling, files)


def _find(name: str) -> FoundModel:
    """The model, before anything of it is read. Raises: ConfigError."""
    try:
        found = find_model(name)
    except ValueError as error:
        if Path(name).expanduser().exists():
            raise _named(error) from None
        found = None
    if found is None or found.kind is ModelKind.HASH_CHAIN:
        expected = f"{PACKAGED_MODEL}, a folder with config.json, a .gguf file or organisation/name on the hub"
        raise ConfigError(f"embedding_model: expected {expected}, got {name}")
    return found


def _opened(name: str, folder: Path, settings: EmbedderSettings | None) -> EmbeddingModel:
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(f"embedding_model: {folder}: expected tokenizer.json in the folder, got none")
    return read_model(name, folder, settings)


def _read_config(folder: Path) -> BertConfig | ModelConfig:
    """Raises: ConfigError, ModelConfigError naming the file and the key."""
    path = folder / "config.json"
    keys = read_keys(path)
    _refuse_other_attention(keys, path)
    kind = keys.value("model_type")
    if kind == _BERT:
        return decode_file(path, BertConfig)
    if kind not in CONFIG_READERS:
        raise ConfigError(
            f"embedding_model: {path}: model_type: expected one of {', '.join((_BERT, *CONFIG_READERS))}, got {kind!r}"
        )
    return read_folder_config(folder)


def _refuse_other_attention(keys: ConfigKeys, path: Path) -> None:
    """Decoders are computed with causal attention, which models that bring code of their own often give up.

    Raises: ConfigError naming the key."""
    if (code := keys.section("auto_map").value("AutoModel")) is not None:
        hint = "this code is not run; without the key the model is served as its model_type says"
        raise ConfigError(f"embedding_model: {path}: auto_map: expected no AutoModel, got {code!r} ({hint})")
    if keys.value("model_type") != _BERT and not keys.value("is_causal", True):
        raise ConfigError(f"embedding_model: {path}: is_causal: expected true, got false")


def _named(error: Exception) -> ConfigError:
    """The error with the setting's name before it."""
    return error if isinstance(error, ConfigError) else ConfigError(f"embedding_model: {error}")


def _packaged_folder() -> Path:
    folder = package_folder(_PACKAGE)
    if folder is not None:
        return folder / "model"
    raise ConfigError(
        f"embedding_model: expected the package {_PACKAGE.project}, got none; `supervisor pull {PACKAGED_MODEL}` fetches it"
    )
