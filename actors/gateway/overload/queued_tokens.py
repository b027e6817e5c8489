"""The tokens of the accepted requests of a gateway that have no token yet, by caller, and the bound of their sum. Pure."""

from __future__ import annotations

from actors.gateway.overload.caller_shares import CallerShares
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import RequestSpec

_FIRST_GUESS_TOKENS = 256.0  # of an answer, while none has ended
_WEIGHT = 0.05  # of each answer that ends, in the mean of their lengths


class QueuedTokens:
    """A sequence counts from the acceptance of its request to its first visible token or its ending. Its price is its prompt,
    once for all answers to it, and the output that is expected: what answers have had of late, at most its `max_tokens`.

    `shares` has the sums. A price is the same when it is added and when it is released."""

    def __init__(self, limit: int, *, are_told_apart: bool) -> None:
        self.shares = CallerShares(limit, are_told_apart=are_told_apart)
        self._mean_tokens = _FIRST_GUESS_TOKENS

    def price_of(self, spec: RequestSpec) -> int:
        """The tokens of a whole request; 0 if another one has its answer."""
        return sum(self._price(spec, index) for index in range(spec.n_sequences))

    def arrived(self, request: Request) -> None:
        """A request is accepted, or taken over from the journal."""
        spec, n_tokens = request.spec, 0
        for sequence in request.sequences:
            if sequence.ended is None and not sequence.ids:
                sequence.queued_tokens = self._price(spec, sequence.index)
                n_tokens += sequence.queued_tokens
        self.shares.add(request.counted_for, spec.terms.weight, n_tokens)

    def started(self, sequence: GrowingSequence) -> None:
        """A sequence has its first token, or has ended without one."""
        self.shares.release(sequence.request.counted_for, sequence.queued_tokens)
        sequence.queued_tokens = 0

    def ended(self, sequence: GrowingSequence) -> None:
        """A sequence has ended: learn how long answers are."""
        if sequence.queued_tokens:
            self.started(sequence)
        if sequence.ids:
            self._mean_tokens += _WEIGHT * (len(sequence.ids) - self._mean_tokens)

    def _price(self, spec: RequestSpec, index: int) -> int:
        if spec.cache_status:
            return 0
        n_prompt = len(spec.prompts[index // spec.n]) // 4 if index % spec.n == 0 else 0
        return n_prompt + min(spec.terms.max_tokens, max(int(self._mean_tokens), 1))
