"""The vectors of questions, from the embedding model that the server has for its clients."""

from __future__ import annotations

import numpy as np

from actors.gateway.embeddings.dispatcher import EmbeddingDispatcher
from actors.gateway.embeddings.text import EmbeddingText
from actors.gateway.settings import GatewaySettings


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
