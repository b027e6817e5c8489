"""What one start of a server has found out, and the tree of its processes depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpu_workers.settings import Quantization
from messages.lifecycle.model_digests import ModelDigests
from supervisor.placement.placement import Placement


@dataclass(frozen=True)
class EmbeddingFacts:
    """The embedding model: what clients call it, its folder, tokens of its longest text, dimensions of its vectors, whether
    these have length 1, prompts by name, and the name of the one that texts get unless clients ask for another."""

    name: str
    folder: str
    max_length: int
    dimensions: int
    is_normalized: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    digests: ModelDigests = field(default_factory=ModelDigests)  # of its files, as they were at the start


@dataclass(frozen=True)
class FallbackFacts:
    """The fallback model: what clients call it, its folder, tokens of its context (0: unknown), its dtype ("" for a model
    without arithmetic) and what its weights become."""

    name: str
    folder: str
    max_length: int
    dtype: str
    quantization: Quantization = "none"
    digests: ModelDigests = field(default_factory=ModelDigests)


@dataclass(frozen=True)
class StartFacts:
    """What the tree depends on besides the configuration."""

    state_dir: Path
    run_dir: Path
    listen_fd: int
    model_setting: str  # a folder, or "hash-chain"
    model_name: str
    model_length: int  # tokens of the model's context; 0: unknown
    placement: Placement
    cores: int
    embedding: EmbeddingFacts | None = None  # None: no embeddings
    fallback: FallbackFacts | None = None  # None: no fallback model
    custodian_fd: int = -1  # the socket at which custodians listen; -1: each one makes its own
    model_digests: ModelDigests = field(default_factory=ModelDigests)  # as they were at the start
    have_gateways_changed: bool = False  # requests may be in the journals of gateways that do not own their ids now

    def to_builtins(self) -> dict[str, Any]:
        """These facts as JSON can hold them."""
        return msgspec.json.decode(msgspec.json.encode(self, enc_hook=str))

    @classmethod
    def from_builtins(cls, table: dict[str, Any]) -> StartFacts:
        """What `to_builtins` made. Raises: msgspec.ValidationError."""
        return msgspec.convert(table, cls, dec_hook=lambda kind, value: kind(value))
