"""The streams of a campaign and the right answers to their prompts."""

from __future__ import annotations

import random

from gpu_workers.hash_chain import hash_chain_tokens
from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from supervisor.drill.run import reference_of
from supervisor.drill.streams import DrillStream, StreamRequest, prompts_of


class Oracle:
    """New streams for each episode, and the right answers to their prompts. `n_alike`: so many streams ask the same."""

    def __init__(self, options: StreamRequest, n_streams: int, sampled_share: float, seed: int, *, n_alike: int = 1) -> None:
        self._options, self._n_streams, self._sampled_share, self._seed = options, n_streams, sampled_share, seed
        self._n_alike = n_alike
        self.right: dict[str, str] = {}
        self._is_chain = True

    async def learn(self) -> None:
        """Learn the answers of a real model: what it gives before the first fault. Raises: ConfigError."""
        self._is_chain = False
        reference = await reference_of(self._options, self._prompts(0))
        if reference.n_unsteady:
            raise ConfigError(f"model: expected the same answers twice, got {reference.n_unsteady} that differ")
        self.right = reference.answers

    def streams(self, number: int) -> list[DrillStream]:
        """The streams of one episode. A real model gets the same prompts again."""
        if not self._is_chain:
            return self._alike([DrillStream(prompt) for prompt in self._prompts(0)])
        chance = random.Random(f"{self._seed} {number}")
        streams = [
            DrillStream(prompt, seed=chance.getrandbits(40) + 1 if chance.random() < self._sampled_share else 0)
            for prompt in self._prompts(number)
        ]
        self.right.update((stream.prompt, self._formula(stream)) for stream in streams)
        return self._alike(streams)

    def _alike(self, streams: list[DrillStream]) -> list[DrillStream]:
        """As many streams, of which so many ask the same as they are to."""
        asked = [streams[index // self._n_alike] for index in range(len(streams))]
        return [DrillStream(stream.prompt, seed=stream.seed) for stream in asked]

    def _prompts(self, number: int) -> list[str]:
        return prompts_of(self._n_streams, self._options.prompt_words, self._seed + number)

    def _formula(self, stream: DrillStream) -> str:
        ids = list(stream.prompt.encode())
        tokens = hash_chain_tokens(ids, self._options.max_tokens, stream.seed, HASH_CHAIN_VOCABULARY)
        return "".join(f"{token} " for token in tokens)
