"""Which model a request was accepted for. A journal outlives the server, and the next start may serve another model.

Two models are the same if their files have the same digests (`messages/lifecycle/model_digests.py`).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import msgspec

from messages.hash_chain import HASH_CHAIN
from messages.lifecycle.model_digests import ModelDigests, read_digests, refuse_other_text


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
    files = read_digests(model_folder)
    return ModelIdentity(bytes.fromhex(files.weights), bytes.fromhex(files.text))


@lru_cache(maxsize=8)
def known_identity(model_folder: str) -> ModelIdentity:
    """As `identify_model`, once for each process: a spare calls it before it becomes a gateway."""
    return identify_model(model_folder)


def served_identity(model_folder: str, at_start: ModelDigests) -> ModelIdentity:
    """The identity of the model that a server computes which was started with these files.

    It is theirs also if the weights on disk are others by now: workers compute with those of the start, or not at all.
    Raises: ConfigError when the tokenizer is another one, OSError when a file cannot be read.
    """
    found = known_identity(model_folder)
    refuse_other_text(model_folder, found.tokenizer.hex(), at_start)
    return ModelIdentity(bytes.fromhex(at_start.weights), found.tokenizer) if at_start.weights else found
