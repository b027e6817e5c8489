"""Converts a GGUF file, once, to a folder in Hugging Face's layout: float32 safetensors, config, tokenizer, chat template.

The folder is written under another name and renamed when all of it is on disk, under a lock. So a folder in the cache is
complete, even if several processes start at once or one dies meanwhile. One from which somebody has removed files is made anew.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors.numpy import save_file

from gpu_workers.model_store.gguf_config import generation_config, hugging_face_config
from gpu_workers.model_store.gguf_file import GgufFile
from gpu_workers.model_store.gguf_folder import FILE_LIST, folder_of_gguf, is_whole
from gpu_workers.model_store.gguf_tokenizer import build_tokenizer, tokenizer_config
from gpu_workers.model_store.model_folder import CACHE_VARIABLE, ModelNotFoundError

LOCK_TIMEOUT_S = 1800.0
SHARD_BYTES = 2 << 30

OnProgress = Callable[[str, float], None]


def converted_folder(path: Path, name: str, on_progress: OnProgress) -> Path:
    """The folder to which the GGUF file `path` is converted; converts it if that has not been done.

    Raises GgufError, UnsupportedTokenizerError, or ModelNotFoundError when the folder cannot be written."""
    folder = folder_of_gguf(path, name)
    if is_whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock", timeout=LOCK_TIMEOUT_S):
            if not is_whole(folder):
                _convert_whole(path, folder, on_progress)
    except Timeout as error:
        raise ModelNotFoundError(f"{folder}: another process has been converting it for {LOCK_TIMEOUT_S:.0f} s") from error
    except ValueError:
        raise
    except Exception as error:  # a full disk; tokenizers and safetensors raise classes of their own
        reason = f"expected a folder with room for the model in float32 (${CACHE_VARIABLE} names another one), got {error}"
        raise ModelNotFoundError(f"{folder.parent}: {reason}") from error
    return folder


def _convert_whole(path: Path, folder: Path, on_progress: OnProgress) -> None:
    partial, damaged = folder.with_name(folder.name + ".partial"), folder.with_name(folder.name + ".damaged")
    for left in (partial, damaged):  # by a process that died; the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir()
    try:
        convert_gguf(path, partial, on_progress)
        _write_json(partial / FILE_LIST, {written.name: written.stat().st_size for written in partial.iterdir()})
        for written in partial.iterdir():
            written.chmod(0o644)  # safetensors writes 0600, and a gateway may run as another user
            _flush(written)
        if folder.is_dir():  # files of it are missing
            folder.rename(damaged)
        partial.rename(folder)
        _flush(folder.parent)
    finally:
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.rmtree(partial, ignore_errors=True)


def convert_gguf(path: Path, folder: Path, on_progress: OnProgress) -> None:
    """Writes all files of the converted model into an empty `folder`."""
    what = f"converting {path.name}"
    on_progress(what, 0.0)
    source = GgufFile(path)
    build_tokenizer(source).save(str(folder / "tokenizer.json"))
    documents = {
        "config.json": hugging_face_config(source),
        "generation_config.json": generation_config(source),
        "tokenizer_config.json": tokenizer_config(source),
    }
    for file_name, document in documents.items():
        _write_json(folder / file_name, document)

    def counted() -> Iterable[tuple[str, np.ndarray]]:
        for done, named in enumerate(source.tensors()):
            yield named
            on_progress(what, (done + 1) / (source.n_tensors + 1))

    _write_shards(folder, counted())
    on_progress(what, 1.0)


def _write_shards(folder: Path, tensors: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes one file, or several of SHARD_BYTES with an index, so that a large model is never in memory as a whole."""
    file_of_tensor: dict[str, str] = {}
    pending: dict[str, np.ndarray] = {}
    n_files = total_bytes = 0

    def write() -> None:
        nonlocal n_files, total_bytes
        n_files += 1
        name = f"model-{n_files:05d}.safetensors"
        save_file(pending, folder / name, metadata={"format": "pt"})
        file_of_tensor.update(dict.fromkeys(pending, name))
        total_bytes += sum(values.nbytes for values in pending.values())
        pending.clear()

    for name, values in tensors:
        pending[name] = values
        if sum(one.nbytes for one in pending.values()) >= SHARD_BYTES:
            write()
    if pending:
        write()
    if n_files == 1:
        (folder / "model-00001.safetensors").rename(folder / "model.safetensors")
        return
    index = {"metadata": {"total_size": total_bytes}, "weight_map": file_of_tensor}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
