"""A question as the cache of similar answers sees it, and what was found for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from actors.gateway.requests.similar_key import SimilarKey
from messages.caches.equal import KeptAnswer


class Question(NamedTuple):
    """The text of a request, and the circle of those with which it may share an answer (`messages.caches.similar.Circle`).

    `least`: how similar another question must be. `may_find`: False if it is to be computed, and its answer kept.
    """

    circle: bytes
    text: str
    least: float
    may_find: bool


@dataclass(frozen=True)
class Asked:
    """What is known of a question once it was looked up. `answer`: that of a question which is as similar as `similarity`;
    None if there is none."""

    key: SimilarKey
    answer: KeptAnswer | None = None
    similarity: float = 0.0
