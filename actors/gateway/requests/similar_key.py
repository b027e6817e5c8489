"""Under what the answer of a request is kept for similar ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class SimilarKey(NamedTuple):
    """`circle`: of the requests that may share an answer (`messages.similar.Circle`); `vector`: of its question, float32
    [dimensions]."""

    circle: bytes
    vector: np.ndarray
