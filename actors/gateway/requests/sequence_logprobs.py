"""The log probabilities of one sequence: those of its tokens, and those of its prompt. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from messages.generation.logprobs import PromptLogprobs, TokenLogprobs, join_logprobs, join_prompt


class SequenceLogprobs:
    """Log probabilities come in parts, one for each step. A new part is joined with those before it that are not larger, so n
    tokens are in about log2(n) parts, and each token is copied as often: what a step costs does not grow with the answer.
    Without a client that asks there are none."""

    __slots__ = ("_firsts", "_parts", "_prompt_parts")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # the first token of each part
        self._parts: list[TokenLogprobs] = []
        self._prompt_parts: list[PromptLogprobs] = []

    def add(self, part: TokenLogprobs) -> None:
        """Add the log probabilities of the next tokens."""
        first, n_tokens, joined = self._n_tokens, part.n_tokens, [part]
        while self._parts and self._parts[-1].n_tokens <= n_tokens:
            joined.append(self._parts.pop())
            first = self._firsts.pop()
            n_tokens += joined[-1].n_tokens
        self._firsts.append(first)
        self._parts.append(join_logprobs(joined[::-1]) if len(joined) > 1 else part)

    def of(self, start: int, stop: int) -> TokenLogprobs:
        """The log probabilities of tokens start .. stop - 1; of zero tokens if the client did not ask for any."""
        begin = max(bisect_right(self._firsts, start) - 1, 0)
        end = max(bisect_left(self._firsts, stop), begin + 1)
        found = zip(self._firsts[begin:end], self._parts[begin:end], strict=True)
        parts = [part.part(max(start - first, 0), stop - first) for first, part in found]
        return parts[0] if len(parts) == 1 else join_logprobs(parts)

    @property
    def _n_tokens(self) -> int:
        return self._firsts[-1] + self._parts[-1].n_tokens if self._parts else 0

    def add_prompt(self, part: PromptLogprobs) -> None:
        """Add the log probabilities of the next tokens of the prompt. Another attempt begins again with the first token."""
        if not part.first:
            self._prompt_parts = []
        self._prompt_parts.append(part)

    @property
    def n_of_prompt(self) -> int:
        """Tokens of the prompt that have log probabilities."""
        return sum(part.n_tokens for part in self._prompt_parts)

    @property
    def prompt(self) -> PromptLogprobs | None:
        """The log probabilities of the whole prompt from the second token on; None if the client did not ask for any, if none
        have come yet, or if the prompt is one token."""
        if len(self._prompt_parts) > 1:
            self._prompt_parts = [join_prompt(self._prompt_parts)]
        return self._prompt_parts[0] if self._prompt_parts else None
