"""The embedder of a simulated server: the real actor with a model whose vectors are a hash of their texts, and whose work takes
time, or never ends."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from gpu_workers.embedding.embedder import Embedder
from gpu_workers.embedding.model import TextEncoder
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.mailbox import MailboxFactory
from tests.support.simulation.edges import Edges, Fault
from tests.support.simulation.virtual_loop import Later

DIMENSIONS = 8
_BATCH_S = (0.001, 0.1)
_FAULTS = (Fault.DIES_BEFORE, Fault.DIES_AFTER, Fault.STOPS_AFTER)


def _pairs() -> Iterator[tuple[str, Fault]]:
    edges = ("embedder gets Embed", "embedder sends Embedded", "gateway sends Embed", "gateway gets Embedded")
    yield from ((edge, fault) for edge in edges for fault in _FAULTS)
    yield from (("embedder computes", fault) for fault in (*_FAULTS, Fault.FAILS, Fault.HANGS))


PAIRS = tuple(_pairs())


def vector_of(ids: np.ndarray) -> np.ndarray:
    """The vector of one text: float32 [DIMENSIONS]. `ids`: its tokens, int32 [n]."""
    return np.frombuffer(blake2b(ids.astype("<i4").tobytes(), digest_size=DIMENSIONS).digest(), np.uint8).astype(np.float32)


class HashEncoder(TextEncoder):
    """Its vectors are those of `vector_of`."""

    dimensions = DIMENSIONS

    def __init__(self, edges: Edges, chance: random.Random) -> None:
        self._edges, self._chance = edges, chance

    def embed(self, texts: Sequence[np.ndarray]) -> Any:
        """The vectors, a little later; never, if it hangs."""
        with self._edges.around("computes") as fault:
            if fault is Fault.FAILS:
                raise RuntimeError("simulated device fault")
            after_s = math.inf if fault is Fault.HANGS else self._chance.uniform(*_BATCH_S)
            return Later(after_s, np.stack([vector_of(text) for text in texts]))


class SimulatedEmbedder(Embedder):
    """The actor, which ends its own process only."""

    def __init__(
        self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory, encoder: HashEncoder, die: Callable[[], None]
    ) -> None:
        super().__init__(spawn_spec, make_mailbox, lambda settings, times: encoder)
        self._die = die

    def abandoned(self) -> None:
        self._die()
