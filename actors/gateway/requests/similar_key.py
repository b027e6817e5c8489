"""Under what the answer of a request is kept for similar ones."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import numpy as np


class SimilarKey(NamedTuple):
    """`circle`: of the requests that may share an answer (`messages.caches.similar.Circle`); `vector`: of its question, float32
    [dimensions]. It may come after the request has begun."""

    circle: bytes
    vector: asyncio.Task[np.ndarray]

    @property
    def known_vector(self) -> np.ndarray | None:
        """The vector if it has come."""
        is_known = self.vector.done() and not self.vector.cancelled() and self.vector.exception() is None
        return self.vector.result() if is_known else None
