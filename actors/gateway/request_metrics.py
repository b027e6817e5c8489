"""The metrics of requests that have ended: their tokens, and the time that their schedulers have needed for each phase."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from actors.gateway.requests.request import Request
from actors.gateway.requests.work_done import work_of
from messages.metrics import Histogram

_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)
_PHASE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class RequestMetrics:
    """Six histograms. Times are those of the access log: a request whose scheduler has not told them counts in none of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, what: str, bounds: tuple[float, ...]) -> Histogram:
            made = Histogram(f"tardigrade_request_{name}", what, bounds)
            registry.register(made)
            return made

        self._prompt = histogram("prompt_tokens", "Tokens of the prompts of a request that has ended.", _TOKENS)
        self._output = histogram("output_tokens", "Tokens of the answers to a request that has ended.", _TOKENS)
        self._queue_s = histogram("queue_seconds", "Time in which a request waited for a place in a step.", _PHASE_S)
        self._prefill_s = histogram("prefill_seconds", "Time from the first step of a request to its first token.", _PHASE_S)
        self._decode_s = histogram("decode_seconds", "Time from the first token of a request to its last one.", _PHASE_S)
        self._compute_s = histogram("compute_seconds", "Time from the first step of a request to its last token.", _PHASE_S)

    def ended(self, request: Request) -> None:
        """Count a request that is over."""
        self._prompt.observe(sum(request.n_prompt))
        self._output.observe(request.n_generated)
        if (work := work_of(request)) is not None:
            self._queue_s.observe(work.queue_s)
            self._prefill_s.observe(work.prefill_s)
            self._decode_s.observe(work.decode_s)
            self._compute_s.observe(work.prefill_s + work.decode_s)
