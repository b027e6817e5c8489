"""Embeddings over ZeroMQ: the client library, what is refused, and a server without an embedding model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from messages.client import AsyncClient
from messages.errors import InvalidRequest, TardigradeError
from tests.support.embedding.embedders import add_embedder, formula, gateway_fields
from tests.support.gateway.gateway_rig import rig

CLS, SEP, HELLO = 101, 102, 7592


async def test_the_client_library(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/z"
    async with rig(zeromq_endpoint=endpoint, **gateway_fields()) as r, AsyncClient(endpoint) as client:
        await add_embedder(r)
        vectors = await client.embed(["hello", "hello hello"])
        expected = np.stack([formula([CLS, HELLO, SEP]), formula([CLS, HELLO, HELLO, SEP])])
        assert np.array_equal(vectors, expected)
        assert np.array_equal(await client.embed([[5, 6], [7]]), np.stack([formula([5, 6]), formula([7])]))
        assert (await client.embed(["hello " * 99], truncate_prompt_tokens=-1, dimensions=2)).shape == (1, 2)
        with pytest.raises(InvalidRequest, match="dimensions"):
            await client.embed(["hello"], dimensions=99)
        with pytest.raises(TardigradeError, match="model"):
            await client.embed(["hello"], model="other")
        with pytest.raises(InvalidRequest, match="counts"):
            await client.embed(["hello", [5, 6]])  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidRequest, match=r"prompt_name: expected one of \[\]"):
            await client.embed(["hello"], prompt_name="query")
        assert r.gateway.bodies.n_bytes == 0


async def test_without_an_embedding_model(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/z"
    async with rig(zeromq_endpoint=endpoint), AsyncClient(endpoint) as client:
        with pytest.raises(TardigradeError, match="computes no embeddings"):
            await client.embed(["hello"])
