"""The section of the configuration about the fallback model. Frozen; every field has a default."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpu_workers.settings import DtypeChoice, QuantizationChoice
from messages.hash_chain import HASH_CHAIN_VOCABULARY


class FallbackSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fallback model, which runs on CPU cores in a process of its own."""

    model_name: str = ""  # what clients see; empty: the model's own name
    max_length: Annotated[int, msgspec.Meta(ge=0)] = 0  # tokens of one sequence; 0: the model's context length
    dtype: DtypeChoice = "auto"  # of weights and activations; auto: float32
    quantization: QuantizationChoice = "exact"  # of the weights of linear layers, as in [worker]
    kv_memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 256 << 20  # memory for keys and values
    n_slots: Annotated[int, msgspec.Meta(ge=0)] = 16  # sequences at once; 0: 64
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0  # threads of torch; 0: all cores
    # the vocabulary, if it is the model hash-chain, which is for tests
    hash_chain_vocabulary: Annotated[int, msgspec.Meta(ge=2, le=2**31 - 1)] = HASH_CHAIN_VOCABULARY
