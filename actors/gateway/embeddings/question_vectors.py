"""The vectors of questions, from the embedding model that the server has for its clients."""

from __future__ import annotations

import numpy as np
from prometheus_client import CollectorRegistry

from actors.gateway.dispatch.post import Post
from actors.gateway.embeddings.dispatcher import EmbeddingDispatcher
from actors.gateway.embeddings.text import EmbeddingText
from actors.gateway.settings import GatewaySettings
from actors.gateway.similar_answers.similar_cache import SimilarCache
from actors.gateway.similar_answers.similar_queries import SimilarQueries

_WAIT_S = {"cuda": 0.1, "cpu": 2.0}  # by the device of the language model


class QuestionVectors:
    """Computes the vectors of short texts. They get the prompt that texts of clients get by default."""

    def __init__(self, settings: GatewaySettings, text: EmbeddingText, dispatcher: EmbeddingDispatcher) -> None:
        self._text, self._dispatcher = text, dispatcher
        self._prompt = settings.embedding_prompts.get(settings.embedding_default_prompt, "")

    async def vector_of(self, question: str) -> np.ndarray:
        """Float32 [dimensions]. Raises: Refusal, also if the model does not take the whole text: what is cut off may be what
        makes two questions differ."""
        ids = self._text.encode([question], "text", self._text.limit(None), self._prompt)
        return (await self._dispatcher.embed(ids))[0]


def similar_cache_of(
    settings: GatewaySettings,
    text: EmbeddingText | None,
    post: Post,
    embedder: EmbeddingDispatcher,
    queries: SimilarQueries,
    registry: CollectorRegistry,
) -> SimilarCache | None:
    """The answers to similar questions; None if they are turned off. `text`: the tokenizer of the embedding model."""
    if settings.answer_cache != "semantic" or text is None:
        return None
    vectors = QuestionVectors(settings, text, embedder)
    wait_s = settings.semantic_wait_s or _WAIT_S[settings.device]
    return SimilarCache(post, queries, vectors.vector_of, wait_s, registry)
