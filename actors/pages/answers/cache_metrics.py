"""The metrics of a cache of answers, read from the cache whenever somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.pages.answers.answer_cache import AnswerCache


class AnswerCacheMetrics(Collector):
    """To be registered where answers are kept."""

    def __init__(self, cache: AnswerCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        """The present numbers, each as one metric."""
        cache = self._cache
        name = "tardigrade_answer_cache_lookups"
        lookups = CounterMetricFamily(name, "Requests looked up there, by result.", labels=["result"])
        lookups.add_metric(["hit"], cache.n_hits)
        lookups.add_metric(["miss"], cache.n_misses)
        yield lookups
        yield CounterMetricFamily("tardigrade_answer_cache_evictions", "Answers dropped for want of room.", cache.n_evicted)
        name, what = "tardigrade_answer_cache_share_evictions", "Answers dropped because their caller had more than its part."
        yield CounterMetricFamily(name, what, cache.n_share_evicted)
        yield CounterMetricFamily("tardigrade_answer_cache_tokens", "Output tokens that came from there.", cache.n_tokens_saved)
        yield GaugeMetricFamily("tardigrade_answer_cache_answers", "Answers that are kept.", len(cache))
        yield GaugeMetricFamily("tardigrade_answer_cache_bytes", "Memory of the kept answers.", cache.n_bytes)
        oldest = "tardigrade_answer_cache_oldest_timestamp_seconds"
        yield GaugeMetricFamily(oldest, "When the oldest kept answer is from; 0 without any.", cache.oldest_s)
