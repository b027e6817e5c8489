"""Streams over the ZeroMQ client that are compared with the oracle token by token."""

from __future__ import annotations

import asyncio

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from tests.support.workers.pulse import PULSE

N_STREAMS, N_TOKENS, VOCABULARY = 32, 200, 32_768
DEADLINE_S = 120.0


class Streams:
    """32 streams with different prompts, greedy and seeded, and how far they are. `n_alike`: so many ask the same."""

    def __init__(
        self, client: AsyncClient, salt: int = 0, extra_tokens: int = 0, n_alike: int = 1, vocabulary: int = VOCABULARY
    ) -> None:
        self._client, self._salt, self._extra_tokens, self._n_alike = client, salt, extra_tokens, n_alike
        self._vocabulary = vocabulary  # of the model that answers
        self.tokens: list[list[int]] = [[] for _ in range(N_STREAMS)]

    def prompt(self, index: int) -> list[int]:
        """Prompts share prefixes, unless there are extra tokens: those are of this stream and this salt alone."""
        index //= self._n_alike
        alone = [1000 * self._salt + index] * self._extra_tokens
        return [*alone, 7, 7, *([3] * (index % 5) * 16), index, 1]

    def seed(self, index: int) -> int:
        index //= self._n_alike
        return index * 1000 if index % 2 else 0

    async def follow(self, index: int) -> None:
        options = {"temperature": 1.0 if self.seed(index) else 0.0, "seed": self.seed(index)}
        stream = self._client.stream(tokens=self.prompt(index), max_tokens=N_TOKENS, deadline_s=DEADLINE_S, **options)
        async with PULSE.beating():
            async for piece in stream:
                assert piece.first == len(self.tokens[index])
                self.tokens[index] += piece.ids

    async def wait_running(self, n_tokens: int) -> None:
        """Until every stream has so many tokens; none of them may be over."""
        async with asyncio.timeout(DEADLINE_S):
            while min(map(len, self.tokens)) < n_tokens:
                await asyncio.sleep(0.005)
        assert max(map(len, self.tokens)) < N_TOKENS, "a stream is over already: nothing would be killed"

    async def wait_prefilling(self) -> None:
        """Until the first stream has a token; others must still be in their prompts."""
        async with asyncio.timeout(DEADLINE_S):
            while not any(self.tokens):
                await asyncio.sleep(0.005)
        assert not all(self.tokens), "every prompt is computed already: nothing would be killed in a prefill"

    def assert_cut(self) -> None:
        """What was just done to the server fell into running streams."""
        assert min(map(len, self.tokens)) < N_TOKENS, "every stream was over already"

    def check(self) -> None:
        for index in range(N_STREAMS):
            assert self.tokens[index] == hash_chain_tokens(self.prompt(index), N_TOKENS, self.seed(index), self._vocabulary)
