"""What requests have saved that got the answers of others: prompt tokens, the time of their prefill, and their keys and values.

It is counted as if no prefix of their prompts had been cached. Times and sizes are those that the first replica of the model
has reported; before any has, only tokens are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.gateway.requests.request_spec import RequestSpec
from messages.generation.replica_load import ReplicaLoad


class AnswerSource(StrEnum):
    """Where the answer of a request comes from that is not computed."""

    KEPT = "kept"  # this gateway has computed and kept it
    SHARED = "shared"  # the same, but another gateway has computed it, or an incarnation before this one
    SIMILAR = "similar"  # it is that of a similar question
    COALESCED = "coalesced"  # it is that of a request which ran at the same time


@dataclass
class Savings:
    """What requests with answers of one source have saved."""

    prompt_tokens: int = 0
    prefill_s: float = 0.0
    n_bytes: float = 0.0  # keys and values of the prompt tokens, at all ranks of a replica


class SavedWork(Collector):
    """Counts for one gateway. load_of: the last report of a replica of a model, by the number of the model."""

    def __init__(self, load_of: Callable[[int], ReplicaLoad | None]) -> None:
        self._load_of = load_of
        self._by_source = {source: Savings() for source in AnswerSource}

    def count(self, spec: RequestSpec, source: AnswerSource) -> None:
        """A request is not computed."""
        saved, load = self._by_source[source], self._load_of(spec.model)
        for prompt in spec.prompts:
            n_tokens = len(prompt) // 4
            saved.prompt_tokens += n_tokens
            if load is not None:
                saved.prefill_s += load.prefill_s(n_tokens)
                saved.n_bytes += n_tokens * load.token_bytes

    def statistics(self, prefix: str, *sources: AnswerSource) -> dict[str, float]:
        """The sums over some sources for /v1/metrics and `supervisor status`, with a prefix before each name."""
        all_saved = [self._by_source[source] for source in sources]
        return {
            f"{prefix}_prompt_tokens": sum(one.prompt_tokens for one in all_saved),
            f"{prefix}_saved_s": round(sum(one.prefill_s for one in all_saved), 3),
            f"{prefix}_saved_bytes": round(sum(one.n_bytes for one in all_saved)),
        }

    def collect(self) -> Iterator[Metric]:
        """The present numbers, each as one metric."""
        tokens = CounterMetricFamily(
            "tardigrade_answers_saved_prompt_tokens",
            "Prompt tokens of requests that got the answers of others, by where these came from.",
            labels=["source"],
        )
        seconds = CounterMetricFamily(
            "tardigrade_answers_saved_prefill_seconds",
            "Time that prefill of these tokens would have taken, by the steps that were measured.",
            labels=["source"],
        )
        sizes = CounterMetricFamily(
            "tardigrade_answers_saved_bytes", "Keys and values of these tokens at all ranks of a replica.", labels=["source"]
        )
        for source, saved in self._by_source.items():
            tokens.add_metric([source], saved.prompt_tokens)
            seconds.add_metric([source], saved.prefill_s)
            sizes.add_metric([source], saved.n_bytes)
        yield from (tokens, seconds, sizes)
