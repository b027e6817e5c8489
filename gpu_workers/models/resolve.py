"""Finds the model that an operator names, and turns it into a folder that workers can open.

find_model           classifies the name: hash chain, GGUF file, folder or hub; looks at the file system only
read_config          reads the model's configuration from its config.json or GGUF header alone, in milliseconds
resolve_model        returns the folder, after a conversion or a download, which may take minutes
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from gpu_workers.model_store.config_keys import ModelConfigError
from gpu_workers.model_store.gguf_config import hugging_face_config
from gpu_workers.model_store.gguf_folder import folder_of_gguf, is_whole
from gpu_workers.model_store.gguf_header import GgufHeader
from gpu_workers.model_store.hub import cached_config, download, download_config
from gpu_workers.model_store.hub_cache.cache_paths import cached_file
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.model_folder import ModelFolder, ModelNotFoundError
from gpu_workers.model_store.packaged import PACKAGES, SMOLLM2, package_folder
from gpu_workers.models.architectures import parse_model_config, read_model_config
from messages.hash_chain import HASH_CHAIN

DEFAULT_MODEL = SMOLLM2
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILE = re.compile(rf"({_HUB_NAME.pattern})/([^?#]+\.gguf)", re.IGNORECASE)
_OLLAMA_NAME = re.compile(r"[a-z][a-z-]*\d[a-z0-9.-]*|[a-z][a-z0-9.-]*:[\w.-]+")  # such as llama3.2 and mistral:latest
_OLLAMA_HINT = "names of Ollama's library are not known here, but hf.co/organisation/name is organisation/name"
_HUB_ADDRESS = re.compile(rf"(?:https?://)?(?:huggingface|hf)\.co/({_HUB_NAME.pattern})(?:[/:?].*)?")

OnProgress = Callable[[str, float], None]


class ModelKind(Enum):
    """Where a model comes from."""

    HASH_CHAIN = "hash chain"
    FOLDER = "folder"
    GGUF = "GGUF file"
    HUB = "hub"


@dataclass(frozen=True)
class FoundModel:
    """A name that has been classified, before anything of the model is read."""

    kind: ModelKind
    name: str  # what clients see
    path: Path | None  # of the folder or of the GGUF file


def find_model(name: str) -> FoundModel:
    """`name`: "", "smollm2" or "SmolLM2-135M-Instruct" (the model that a package ships), "hash-chain", a GGUF file, a folder
    with config.json and safetensors (config.json alone is enough for random weights), a name on the Hugging Face hub, or a
    GGUF file of it that was fetched before.

    Raises ModelNotFoundError when it is none of these."""
    if name == HASH_CHAIN:
        return FoundModel(ModelKind.HASH_CHAIN, HASH_CHAIN, None)
    if name in ("", DEFAULT_MODEL) or (is_default_model(name) and not Path(name).is_dir()):
        return FoundModel(ModelKind.GGUF, DEFAULT_MODEL, _packaged_gguf())
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFoundError(f"{path}: expected config.json in the folder, got none")
        return FoundModel(ModelKind.FOLDER, path.resolve().name, path.resolve())
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelNotFoundError(f"{path}: expected a .gguf file or a folder with config.json, got another file")
        return FoundModel(ModelKind.GGUF, path.stem, path.resolve())
    if (file := hub_file(name)) is not None:
        if (gguf := cached_file(*file)) is None:
            raise ModelNotFoundError(f"{name}: no such file; if it is on the hub, `supervisor pull {name}` fetches it")
        return FoundModel(ModelKind.GGUF, gguf.stem, gguf)  # a link, whose target has another name
    if _HUB_NAME.fullmatch(name) and path.suffix.lower() != ".gguf":
        return FoundModel(ModelKind.HUB, name, None)
    hint = _hint(name)
    raise ModelNotFoundError(
        f"{name}: no such file or folder; expected {DEFAULT_MODEL}, a .gguf file, a folder with config.json,"
        f" or organisation/name on the hub{f'; {hint}' if hint else ''}"
    )


def _hint(name: str) -> str:
    """What was probably meant by the name of a model that is not found; "" if nothing is known."""
    if address := _HUB_ADDRESS.fullmatch(name):
        return f"did you mean {address[1]}?"
    if name.lower().startswith(DEFAULT_MODEL):
        return f"did you mean {DEFAULT_MODEL}?"
    return _OLLAMA_HINT if _OLLAMA_NAME.fullmatch(name) else ""


def is_default_model(name: str) -> bool:
    """Is this a name of the model that a package ships? Capital letters do not matter."""
    return name.lower() in (DEFAULT_MODEL, *PACKAGES[DEFAULT_MODEL].aliases)


def hub_file(name: str) -> tuple[str, str] | None:
    """The model and the file that `organisation/name/FILE.gguf` names on the hub; None for all other names."""
    match = _HUB_FILE.fullmatch(name)
    return (match[1], match[2]) if match else None


def read_config(name: str, may_download: bool = True) -> ModelConfig | None:
    """The configuration of the model `name` (see `find_model`), without its weights; None for the hash chain, which has none.

    A model on the hub that is not in the cache gives its config.json alone; None when `may_download` forbids that. Raises
    ModelNotFoundError, ModelConfigError or GgufError."""
    found = find_model(name)
    if found.kind is ModelKind.HUB:
        config_path = cached_config(name) or (download_config(name) if may_download else None)
        return read_folder_config(config_path.parent) if config_path is not None else None
    if found.path is None:
        return None
    if found.kind is ModelKind.FOLDER:
        return read_folder_config(found.path)
    try:
        header = GgufHeader(found.path)
        return replace(parse_model_config(hugging_face_config(header)), stored_as=header.file_type)
    except ModelConfigError as error:
        raise ModelConfigError(f"{found.path}: {error}") from error


def resolve_model(name: str, on_progress: OnProgress = lambda what, fraction: None) -> ModelFolder:
    """The model `name` (see `find_model`) as a folder, converted or downloaded first where that is needed.

    on_progress(what, fraction 0 .. 1) is called while a file is converted or downloaded. May take minutes; call it from a
    thread. Raises ModelNotFoundError, ModelConfigError, GgufError or UnsupportedTokenizerError."""
    found = find_model(name)
    if found.kind is ModelKind.HASH_CHAIN:
        return ModelFolder("hash_chain", HASH_CHAIN, None, None)
    folder = fetch_folder(found, on_progress)
    return ModelFolder("weights", found.name, folder, read_folder_config(folder))


def fetch_folder(found: FoundModel, on_progress: OnProgress) -> Path:
    """The folder of a model, downloaded or converted where that is needed; nothing in it is read. on_progress: as in
    `resolve_model`. Raises ModelNotFoundError, GgufError or UnsupportedTokenizerError."""
    if found.kind is ModelKind.HUB:
        return download(found.name, on_progress)
    if found.path is None:
        raise ModelNotFoundError(f"{found.name}: expected a model with files")
    if found.kind is ModelKind.FOLDER:
        return found.path
    if is_whole(folder := folder_of_gguf(found.path, found.name)):
        return folder
    from gpu_workers.model_store.gguf_conversion import converted_folder  # slow imports, for the first start alone

    return converted_folder(found.path, found.name, on_progress)


def read_folder_config(folder: Path) -> ModelConfig:
    """The configuration in `folder`. Raises ModelConfigError naming the file and the key."""
    try:
        return read_model_config(folder)
    except ModelConfigError as error:
        text = str(error)
        raise ModelConfigError(text if text.startswith(str(folder)) else f"{folder / 'config.json'}: {text}") from error


def _packaged_gguf() -> Path:
    folder = package_folder(PACKAGES[DEFAULT_MODEL])
    for file in sorted(folder.glob("*.gguf")) if folder is not None else []:
        return file
    raise ModelNotFoundError(
        f"{DEFAULT_MODEL}: expected the package {PACKAGES[DEFAULT_MODEL].project}, got none;"
        f" `supervisor pull {DEFAULT_MODEL}` fetches it"
    )
