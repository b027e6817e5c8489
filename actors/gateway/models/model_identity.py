"""Which model a request was accepted for. A journal outlives the server, and the next start may serve another model.

The fingerprint reads the small files of a model folder whole, and of each file of weights its size and samples of its bytes, so
that 100 GB of weights take milliseconds. Names and times of files do not count: a copy of a model is the same model.
"""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from messages.hash_chain import HASH_CHAIN

_WEIGHTS = (".safetensors", ".gguf")
_TEXT_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_WHOLE_BYTES = 64 << 20  # smaller files are read whole
_N_SAMPLES, _SAMPLE_BYTES = 64, 4096
_DIGEST_BYTES = 16


class ModelIdentity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Digests of the weights with their configuration, and of the tokenizer; b"" if unknown.

    `numerics`: what else decides the exact tokens: dtype, ranks, devices, kernels; "" where unknown. `is_exact`: the server
    promises that a request's tokens depend on nothing but the request (`worker.deterministic`).
    """

    model: bytes = b""
    tokenizer: bytes = b""
    numerics: str = ""
    is_exact: bool = False

    @property
    def fingerprint(self) -> str:
        """OpenAI's `system_fingerprint`. It differs between servers where the same request may get different tokens."""
        numbers = blake2b(self.model + self.tokenizer + self.numerics.encode(), digest_size=5)
        return f"fp_{numbers.hexdigest()}"

    def with_numerics(self, numerics: str, *, is_exact: bool) -> ModelIdentity:
        """The identity of this model when it is computed with these numerics."""
        return ModelIdentity(self.model, self.tokenizer, numerics, is_exact)

    def has_model_of(self, other: ModelIdentity) -> bool:
        """True if both are the same weights and the same tokenizer."""
        return (self.model, self.tokenizer) == (other.model, other.tokenizer)

    def goes_on_with(self, served: ModelIdentity) -> bool:
        """True if a request that was accepted for this model may go on with the served one: the weights and the tokenizer are
        the same; and the numerics are, if the answer is promised to be exact. Without that promise the next token is one that
        the same model gives after the same text, as it always is when a batch or a device differs.
        """
        is_same = (self.numerics, self.is_exact) == (served.numerics, served.is_exact)
        return self.has_model_of(served) and (is_same or not self.is_exact)


def identify_model(model_folder: str) -> ModelIdentity:
    """The identity of a model folder, of a GGUF file, or of the hash-chain model. Blocks for some milliseconds.

    Raises: OSError when a file cannot be read.
    """
    if model_folder == HASH_CHAIN:
        return ModelIdentity(HASH_CHAIN.encode(), HASH_CHAIN.encode())
    path = Path(model_folder)
    files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if entry.is_file())
    weights = [file for file in files if file.suffix in _WEIGHTS]
    small = [file for file in files if file.name in ("config.json", "params.json")]
    text = [file for file in files if file.name in _TEXT_FILES]
    return ModelIdentity(_digest([*small, *weights]), _digest(text or weights))


@lru_cache(maxsize=8)
def known_identity(model_folder: str) -> ModelIdentity:
    """As `identify_model`, once for each process: a spare calls it before it becomes a gateway."""
    return identify_model(model_folder)


def _digest(files: list[Path]) -> bytes:
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
    return whole.digest()
