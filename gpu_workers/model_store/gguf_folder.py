"""Where the folder lies to which a GGUF file is converted. It imports little, so that a start that finds it is quick."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from gpu_workers.model_store.model_folder import cache_folder

FILE_LIST = "converted.json"  # in the folder: how many bytes each of its files has
_FORMAT = 1  # raise it when the same file would be converted differently
_LEAST = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def folder_of_gguf(path: Path, name: str) -> Path:
    """The folder for the GGUF file `path`, complete when it was made. Raises: OSError when the file cannot be read."""
    stat = path.stat()
    identity = f"{_FORMAT}:{path.name}:{stat.st_size}:{stat.st_mtime_ns}"
    return cache_folder() / "models" / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def is_whole(folder: Path) -> bool:
    """True if all files of a converted model are there, each with its bytes: who tidies up a cache removes single files, and
    without tokenizer_config.json a model has no chat template. A folder of an earlier release has no list of its files."""
    try:
        listed: dict[str, int] = json.loads((folder / FILE_LIST).read_bytes())
        return all((folder / name).stat().st_size == n_bytes for name, n_bytes in listed.items())
    except FileNotFoundError:
        is_listed = (folder / FILE_LIST).exists()
        return not is_listed and all((folder / name).is_file() for name in _LEAST) and any(folder.glob("*.safetensors"))
    except (ValueError, AttributeError):  # it is damaged
        return False
