"""The name and the vocabulary of the hash chain, the model of tests, which gateways and workers have to agree on."""

from __future__ import annotations

HASH_CHAIN = "hash-chain"
HASH_CHAIN_VOCABULARY = 32_768
