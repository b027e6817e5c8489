"""One server for all tests that run the examples of the documents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ops.bench.own_server import OwnServer, own_server
from tests.support.real_server import WITHOUT_SPARES


@pytest.fixture(scope="package")
def hash_chain_server() -> Iterator[OwnServer]:
    """A running server with the hash-chain model and one for embeddings. Answers without `max_tokens` are short."""
    flags = ["--model", "hash-chain", "--max-length", "1024", "--log-level", "warning"]
    flags += [*WITHOUT_SPARES, "--embedding-model", "all-MiniLM-L6-v2", "--set", "gateway.operator_key=my-key"]
    with own_server(flags, deadline_s=120.0) as server:
        yield server
