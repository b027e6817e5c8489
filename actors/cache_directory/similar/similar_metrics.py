"""The metrics of answers that are kept for similar questions, read from these whenever somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.cache_directory.similar.similar_answers import SimilarAnswers


class SimilarMetrics(Collector):
    """To be registered where such answers are kept."""

    def __init__(self, answers: SimilarAnswers) -> None:
        self._answers = answers

    def collect(self) -> Iterator[Metric]:
        """The present numbers, each as one metric."""
        answers = self._answers
        name = "tardigrade_similar_lookups"
        lookups = CounterMetricFamily(name, "Questions looked up among kept ones, by result.", labels=["result"])
        lookups.add_metric(["hit"], answers.n_hits)
        lookups.add_metric(["miss"], answers.n_misses)
        yield lookups
        yield CounterMetricFamily("tardigrade_similar_evictions", "Such answers dropped for want of room.", answers.n_evicted)
        name, what = "tardigrade_similar_share_evictions", "Answers dropped because their caller had more than its part."
        yield CounterMetricFamily(name, what, answers.n_share_evicted)
        yield GaugeMetricFamily("tardigrade_similar_answers", "Answers that are kept for similar questions.", len(answers))
        yield GaugeMetricFamily("tardigrade_similar_bytes", "Memory of these answers.", answers.n_bytes)
        oldest = "tardigrade_similar_oldest_timestamp_seconds"
        yield GaugeMetricFamily(oldest, "When the oldest of these answers is from; 0 without any.", answers.oldest_s)
