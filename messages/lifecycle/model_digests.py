"""Which files a model had when its server was started: gateways and workers that start later serve these files, or none.

A digest reads the small files of a model folder whole, and of each file of weights its size and samples of its bytes, so that
100 GB of weights take milliseconds. Names and times of files do not count: a copy of a model is the same model. Nor do weights
that are not loaded, such as those of another format beside them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec

from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN
from messages.lifecycle.used_weights import used_weights

_WEIGHTS = (".safetensors", ".gguf")
_TEXT_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_WHOLE_BYTES = 64 << 20  # smaller files are read whole
_N_SAMPLES, _SAMPLE_BYTES = 64, 4096
_DIGEST_BYTES = 16


class ModelDigests(msgspec.Struct, frozen=True, kw_only=True):
    """Digests, in hexadecimal, of the weights with their configuration, and of the tokenizer; "" if they do not count."""

    weights: str = ""
    text: str = ""


def read_digests(model_folder: str, also: Iterable[str] = ()) -> ModelDigests:
    """The digests of a model folder, or of a GGUF file; none of the hash chain, which has no files. Blocks for milliseconds.

    `also`: small files that count beside the configuration, where they exist. Raises: OSError when a file cannot be read.
    """
    if model_folder == HASH_CHAIN:
        return ModelDigests()
    path = Path(model_folder)
    files = _files(path)
    small = [file for file in files if file.name in ("config.json", "params.json")]
    small += [path / name for name in also if (path / name).is_file()]
    weights = _digest([*small, *_weights(path, files)])
    return ModelDigests(weights=weights, text=read_text_digest(model_folder))


def read_text_digest(model_folder: str) -> str:
    """The digest of its tokenizer alone. Raises: OSError when a file cannot be read."""
    path = Path(model_folder)
    files = _files(path)
    return _digest([file for file in files if file.name in _TEXT_FILES] or _weights(path, files))


def refuse_other_weights(model_folder: str, at_start: ModelDigests, also: Iterable[str] = ()) -> None:
    """Raises: ConfigError when the weights are not those with which the server was started, because a stream would go on with
    the tokens of another model. OSError when a file cannot be read."""
    if at_start.weights and read_digests(model_folder, also).weights != at_start.weights:
        raise ConfigError(_changed(model_folder, "weights"))


def refuse_other_text(model_folder: str, found: str, at_start: ModelDigests) -> None:
    """The same for the tokenizer, whose digest is `found`: a stream would go on with the text of other tokens.

    Raises: ConfigError when it is another one."""
    if at_start.text and found != at_start.text:
        raise ConfigError(_changed(model_folder, "tokenizer"))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(entry for entry in path.iterdir() if entry.is_file())


def _weights(path: Path, files: list[Path]) -> list[Path]:
    """The files that hold the weights of a model. One that is missing does not count: that is another model then."""
    if path.is_file():
        return [path]
    try:
        used = [file for file in used_weights(path) if file.is_file()]
    except ValueError:  # whoever loads the model says so
        used = []
    return used or [file for file in files if file.suffix in _WEIGHTS]


def _changed(model_folder: str, what: str) -> str:
    return (
        f"{model_folder}: expected the {what} with which this server was started, but the files have changed; put the old"
        " ones back, or stop the server and start it with the new ones"
    )


def _digest(files: list[Path]) -> str:
    whole = blake2b(digest_size=_DIGEST_BYTES)
    for file in files:
        size = file.stat().st_size
        whole.update(size.to_bytes(8, "little"))
        with file.open("rb") as opened:
            if size <= _WHOLE_BYTES and file.suffix not in _WEIGHTS:
                whole.update(opened.read())
                continue
            for nth in range(_N_SAMPLES + 1):
                offset = max(size - _SAMPLE_BYTES, 0) * nth // _N_SAMPLES
                whole.update(os.pread(opened.fileno(), _SAMPLE_BYTES, offset))
    return whole.hexdigest()
