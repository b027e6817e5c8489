"""Which files a model had when its server was started: gateways and workers that start later serve these files, or none.

A digest reads the small files of a model folder whole, and of each file of weights its size and samples of its bytes, so that
100 GB of weights take milliseconds. Names and times of files do not count: a copy of a model is the same model.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import msgspec

from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN

_WEIGHTS = (".safetensors", ".gguf")
_TEXT_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_WHOLE_BYTES = 64 << 20  # smaller files are read whole
_N_SAMPLES, _SAMPLE_BYTES = 64, 4096
_DIGEST_BYTES = 16


class ModelDigests(msgspec.Struct, frozen=True, kw_only=True):
    """Digests, in hexadecimal, of the weights with their configuration, and of the tokenizer; "" if they do not count."""

    weights: str = ""
    text: str = ""


def read_digests(model_folder: str) -> ModelDigests:
    """The digests of a model folder, or of a GGUF file; none of the hash chain, which has no files. Blocks for milliseconds.

    Raises: OSError when a file cannot be read.
    """
    if model_folder == HASH_CHAIN:
        return ModelDigests()
    path = Path(model_folder)
    files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if entry.is_file())
    weights = [file for file in files if file.suffix in _WEIGHTS]
    small = [file for file in files if file.name in ("config.json", "params.json")]
    text = [file for file in files if file.name in _TEXT_FILES]
    return ModelDigests(weights=_digest([*small, *weights]), text=_digest(text or weights))


def refuse_other_weights(model_folder: str, at_start: ModelDigests) -> None:
    """Raises: ConfigError when the weights are not those with which the server was started, because a stream would go on with
    the tokens of another model. OSError when a file cannot be read."""
    if at_start.weights and read_digests(model_folder).weights != at_start.weights:
        raise ConfigError(_changed(model_folder, "weights"))


def refuse_other_text(model_folder: str, found: str, at_start: ModelDigests) -> None:
    """The same for the tokenizer, whose digest is `found`: a stream would go on with the text of other tokens.

    Raises: ConfigError when it is another one."""
    if at_start.text and found != at_start.text:
        raise ConfigError(_changed(model_folder, "tokenizer"))


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
