"""The log probabilities of one sequence: those of its tokens, and those of its prompt. Pure."""

from __future__ import annotations

from messages.generation.logprobs import PromptLogprobs, TokenLogprobs, join_logprobs, join_prompt


class SequenceLogprobs:
    """Log probabilities come in parts, which are joined when they are first read. Without a client that asks there are none."""

    __slots__ = ("_parts", "_prompt_parts")

    def __init__(self) -> None:
        self._parts: list[TokenLogprobs] = []
        self._prompt_parts: list[PromptLogprobs] = []

    def add(self, part: TokenLogprobs) -> None:
        """Add the log probabilities of the next tokens."""
        self._parts.append(part)

    def of(self, start: int, stop: int) -> TokenLogprobs:
        """The log probabilities of tokens start .. stop - 1; of zero tokens if the client did not ask for any."""
        if len(self._parts) > 1:
            self._parts = [join_logprobs(self._parts)]
        return self._parts[0].part(start, stop) if self._parts else TokenLogprobs()

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
