"""The metrics of the answers that gateways share, read whenever somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.cache_directory.answers.sharing import AnswerSharing
from actors.pages.answers.answer_cache import AnswerCache


class SharingMetrics(Collector):
    """To be registered where such answers are kept."""

    def __init__(self, cache: AnswerCache, sharing: AnswerSharing) -> None:
        self._cache, self._sharing = cache, sharing

    def collect(self) -> Iterator[Metric]:
        """The present numbers, each as one metric."""
        cache = self._cache
        yield CounterMetricFamily(
            "tardigrade_shared_answer_evictions", "Shared answers dropped for want of room.", cache.n_evicted
        )
        name, what = "tardigrade_shared_answer_share_evictions", "Answers dropped because their caller had more than its part."
        yield CounterMetricFamily(name, what, cache.n_share_evicted)
        yield CounterMetricFamily(
            "tardigrade_shared_answer_hits", "Answers that gateways have found and that are shared.", self._sharing.n_used
        )
        yield GaugeMetricFamily("tardigrade_shared_answers", "Answers that gateways share.", len(cache))
        yield GaugeMetricFamily("tardigrade_shared_answer_bytes", "Memory of these answers.", cache.n_bytes)
        oldest = "tardigrade_shared_answers_oldest_timestamp_seconds"
        yield GaugeMetricFamily(oldest, "When the oldest of these answers is from; 0 without any.", cache.oldest_s)
